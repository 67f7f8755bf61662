"""Pictures, transcripts and a voice, by providers that the user has chosen or by programs of this machine.

May import the same as services. Hands out `ChosenMedia` and `Voice`, to `session` alone.
"""
