"""Provide tables of everything chosen by name: model providers, memory backends, embedders, sandbox kinds, plug-ins.

Each record declares a choice's properties and how to open it. May import core. Exports the tables PROVIDERS, BACKENDS,
EMBEDDERS and KINDS, and the parsers of choices.
"""
