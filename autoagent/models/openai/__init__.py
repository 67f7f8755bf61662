"""The client of an OpenAI-compatible endpoint, which is
trusted with nothing: requests, answers, retries, embeddings.

May import what models may. The `openai` package in `endpoint` alone. Hands out the model and the embedder that the
registry opens, and the findings of `doctor` on them.
"""
