"""A process that adds COUNT memories named PREFIX to FOLDER, and prints each id once it is acknowledged."""

import sys
from pathlib import Path

from bag_of_words import BagOfWords
from defaults import put

from autoagent.memory.sqlite.store import LocalStore

if __name__ == "__main__":
    folder, prefix, count = sys.argv[1:]
    with LocalStore(Path(folder), BagOfWords()) as memory:
        for number in range(int(count)):
            print(put(memory, f"{prefix} fact {number}"), flush=True)
