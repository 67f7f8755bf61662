"""langchain's agent with a tool that reads a file."""

from pathlib import Path

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI


def read_file(filename: str) -> str:
    """Read a file."""
    return Path(filename).read_text()


agent = create_agent(ChatOpenAI(model="gpt-4o-mini"), tools=[read_file])
agent.invoke({"messages": [("user", "Read the notes")]}, {"recursion_limit": 1_000_000})
