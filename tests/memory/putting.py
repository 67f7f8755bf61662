"""A process that puts COUNT memories named PREFIX into the memory KIND PLACE INDEX, and prints each acknowledged id."""

import sys

from databases import Backend

if __name__ == "__main__":
    kind, place, index, prefix, count = sys.argv[1:]
    with Backend(kind, place, index) as backend:
        store = backend.open()
        for number in range(int(count)):
            id = store.put(f"{prefix} fact {number}", t=number, kind="note", source="", trusted=True, run="", step=0)
            print(id, flush=True)
