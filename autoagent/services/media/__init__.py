"""Pictures, transcripts and a voice, by providers that the user has chosen or by programs of this machine.

May import what services may. Hands out `ChosenMedia` and `Voice`, to `session` alone.
"""
