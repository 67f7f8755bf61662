"""The shared vocabulary: the records of a run, the protocols between rooms, the errors, the codec of the log.

May import the standard library alone (but for `record_codec`: msgspec). Hands out events, commands, models, memories
and tasks as plain records, and the protocols that the other rooms satisfy.
"""
