"""Provide models: OpenAI-compatible endpoints, the embedded model, a person, a recorded run and the demo.

May import the rooms of rank 1 and core. Exports implementations of `Model`, opened by the registry; the
prices and windows of known models; `LimitedListener`, which enforces the limits during a call.
"""
