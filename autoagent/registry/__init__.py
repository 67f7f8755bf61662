"""Tables of everything chosen by name: model providers, memory backends, embedders, kinds of sandbox, and plug-ins.

A record declares the properties of a choice and how to open it. May import core. Hands out the tables PROVIDERS,
BACKENDS, EMBEDDERS and KINDS, and the parsers of choices.
"""
