"""Define the shared vocabulary: records of a run, protocols between rooms, errors, the codec of the log.

May import only the standard library, and msgspec in `codec`. Exports events, commands, models, memories and
tasks as plain records, and the protocols that the other rooms satisfy.
"""
