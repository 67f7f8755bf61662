"""Talk to an untrusted OpenAI-compatible endpoint: requests, answers, retries, embeddings.

May import what models may. The `openai` package in `endpoint` alone. Exports the model and the embedder that the
registry opens, and the findings of `doctor` on them.
"""
