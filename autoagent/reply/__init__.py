"""From a model's reply to the command in it, or to the reason why there is none. Nothing is guessed.

May import the rooms of rank 1 and core. Hands out `parser.parse`, and the thoughts of a reply that is still growing.
"""
