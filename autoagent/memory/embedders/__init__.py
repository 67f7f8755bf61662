"""Vectors of texts: the embedders that need no network, and how a store uses any embedder.

May import core and text. Exports what the registry opens, and `Embedding`, which counts and checks what one gives.
"""
