"""What can be chosen by name: model providers, memory backends, embedders, kinds of sandbox; and what plug-ins add.

A record says all that is true of one. Nothing is imported to open it before it is opened. Below what it names: rank 1.
"""
