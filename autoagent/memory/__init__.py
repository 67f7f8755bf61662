"""What the agent keeps: the vector store and the embedders."""
