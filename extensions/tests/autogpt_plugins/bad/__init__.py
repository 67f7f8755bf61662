"""Does in one hook what no plug-in should."""

import os
import time
from pathlib import Path

from auto_gpt_plugin_template import AutoGPTPluginTemplate

WHERE = Path(__file__).parent.name.removeprefix("bad_")
WAY = os.environ["WAY"]


def misbehave():
    print("{}\n" * 1000)
    if WAY == "raises":
        raise ValueError("as it likes")
    if WAY == "hangs":
        time.sleep(3600)
    if WAY == "exits":
        os._exit(3)
    if WAY == "leaks":
        kept = []
        while True:
            kept.append(bytearray(1 << 28))


def can(*args, **kwargs):
    return True


def hook(*args, **kwargs):
    misbehave()


AutoGPTPluginTemplate.__abstractmethods__ = frozenset()
Bad = type("Bad", (AutoGPTPluginTemplate,), {f"can_handle_{WHERE}": can, WHERE: hook, f"handle_{WHERE}": hook})


class Found(AutoGPTPluginTemplate):
    """What the source shows."""
