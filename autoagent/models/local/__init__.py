"""The embedded model: its weights, how they are fetched and checked, and llama.cpp that runs them.

May import what models may; xllamacpp in `llama` alone. Hands out the model that the registry opens, and `weights`.
"""
