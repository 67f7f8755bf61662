"""A process that adds, recalls, sleeps and forgets in FOLDER without end, and prints all levels after each of them."""

import json
import sys
from pathlib import Path
from random import Random

from bag_of_words import BagOfWords

from autoagent.memory.dreams import Journal
from autoagent.memory.living_memory import LifeRules, LivingMemory
from autoagent.memory.sqlite.store import LocalStore

if __name__ == "__main__":
    folder, random, now = Path(sys.argv[1]), Random(5), 0.0
    store = LocalStore(folder, BagOfWords(), random=Random(6))
    with LivingMemory(store, Journal(folder / "dreams.jsonl"), rules=LifeRules(base=5.0), clock=lambda: now) as memory:
        for number in range(1_000_000):
            now += random.random() * 3
            levels = {m.text: m.level for m in store.listed()}
            done = random.choice(("add", "add", "recall", "sleep", "forget"))
            if done == "add":
                memory.add(f"fact {number} apples")
            elif done == "recall":
                memory.recall(f"fact {random.randrange(number + 1)}", 3)
            elif done == "forget" and levels:
                text = random.choice(sorted(levels))
                print(json.dumps({"forgets": text, "levels": levels}), flush=True)
                found = store.find(text)
                assert found and memory.forget(found.id)
            else:
                memory.sleep(4, lambda prompt: "a dream")
            print(json.dumps({"forgets": None, "levels": {m.text: m.level for m in store.listed()}}), flush=True)
