"""The models: any OpenAI-compatible endpoint, the embedded model, a person, a recorded run, the demo.

May import the rooms of rank 1 and core. Hands out what satisfies `Model`, opened by the registry; prices and windows of
known models; `Watch`, which sees to the limits while one is waited for.
"""
