"""A process that puts COUNT memories named PREFIX into the memory KIND PLACE INDEX, and prints each acknowledged id."""

import sys

from databases import Backend
from defaults import put

if __name__ == "__main__":
    kind, place, index, prefix, count = sys.argv[1:]
    with Backend(kind, place, index) as backend:
        store = backend.open()
        for number in range(int(count)):
            print(put(store, f"{prefix} fact {number}", number), flush=True)
