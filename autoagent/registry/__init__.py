"""Everything chosen by name: model providers, memory backends, embedders, kinds of sandbox; and plug-ins.

A record says all that is true of one, and where to import it from once it is opened. May import core. Hands out the
tables PROVIDERS, BACKENDS, EMBEDDERS and KINDS, and what is chosen from them.
"""
