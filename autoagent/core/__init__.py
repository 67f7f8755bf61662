"""Define the shared vocabulary: records of a run, protocols between rooms, errors, the codec of the log.

May import the standard library alone (but for `codec`: msgspec). Exports events, commands, models, memories and
tasks as plain records, and the protocols that the other rooms satisfy.
"""
