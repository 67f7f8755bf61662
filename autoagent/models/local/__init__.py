"""Run the embedded model: download and verify its weights, and load them with llama.cpp.

May import what models may; xllamacpp in `llama` alone. Exports the model that the registry opens, and `weights`.
"""
