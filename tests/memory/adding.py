"""A process that adds COUNT memories named PREFIX to FOLDER, and prints each id once it is acknowledged."""

import sys
from pathlib import Path

from bag_of_words import BagOfWords

from autoagent.memory.store import LocalMemory

if __name__ == "__main__":
    folder, prefix, count = sys.argv[1:]
    with LocalMemory(Path(folder), BagOfWords()) as memory:
        for number in range(int(count)):
            print(memory.add(f"{prefix} fact {number}"), flush=True)
