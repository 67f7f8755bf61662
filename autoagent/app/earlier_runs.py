"""Earlier runs of this state folder that are resumed: their state, and the settings and task they continue with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoagent.app import run_factory
from autoagent.app.current import explicit_settings, look
from autoagent.config.settings import EMBEDDER, KEPT, Settings
from autoagent.core.errors import StateError
from autoagent.core.events import Changed, Ended, Event, Rejected, Resumed, Rewound, RunStarted, SystemNotice, Thought
from autoagent.runs.log_reader import effective, read, run_ids
from autoagent.terminal.console import Console
from autoagent.terminal.output import echo


def settings_of_run(began: RunStarted, given: Mapping[str, Any]) -> Settings:
    """Return the settings a run continues with. The flags `given` override its own, and so does what
    environment, `.env` or user config say now and did not say when it last began: the user has set them since.
    """
    own = {name: tuple(value) if isinstance(value, list) else value for name, value in began.settings.items()}
    if "said" not in own and own.get("embedding_model") == EMBEDDER:  # so an older log has what nobody named
        del own["embedding_model"]
    before = began.settings.get("said", {})
    said = run_factory.as_kept(explicit_settings(name for name in run_factory.KEPT_SETTINGS if name != "workspace"))
    since = [name for name, value in said.items() if name not in before or before[name] != value]
    kept = {name: value for name, value in own.items() if name not in since}
    here = look({KEPT: kept, **given})
    here.tell_unsent(but=look(given).loaded.unsent)
    return here.settings


def last_start(state_dir: Path, run: str) -> RunStarted:
    """Return the newest event that says what shapes the run. Raises StateError if there is none."""
    return ends(state_dir, run)[0]


def ends(state_dir: Path, run: str) -> tuple[RunStarted, bool]:
    """Return the newest event that shapes the run, and whether it is finished. Raises StateError as `last_start`."""
    began, ended = _ends(state_dir, run)
    if began is None:
        raise StateError(f"The run {run} was cut off before it began; start a new one.")
    return began, ended is not None and ended.status == "finished"


def newest_unfinished(state_dir: Path) -> str:
    """Return the newest unfinished run; report damaged logs. Raises StateError if there is none."""
    for run in run_ids(state_dir):
        try:
            began, ended = _ends(state_dir, run)
        except StateError as error:
            echo(f"autoagent: {error}", err=True)
        else:
            if began is not None and (ended is None or ended.status != "finished"):
                return run
    raise StateError(f"There is no unfinished run in {state_dir}.")


def answered(settings: Settings, run: str, step: int | None = None) -> int:
    """Count the replies of a recording used by the end of a step (None: by now); 0 if the model is none."""
    if not settings.model_choice.provider.recorded:
        return 0
    return sum(step is None or event.step <= step for event in replies(settings, run))


def tell_changes(began: RunStarted, start: RunStarted, console: Console) -> Iterator[Event]:
    """Tell the user what is not as it was in the run so far; the events that tell the agent."""
    if replace(start.task, budget=began.task.budget) != began.task:
        goals = "; ".join(f"{number}. {goal}" for number, goal in enumerate(start.task.goals, 1))
        text = f"The task has changed. You are {start.task.name}, {start.task.role}. Goals now: {goals}"
        console.say(text)
        yield SystemNotice(text=text)
    before, now = (_comparable(event) for event in (began, start))
    changes = [
        f"{name} {before[name]!r} -> {now[name]!r}" for name in now if name in before and before[name] != now[name]
    ]
    if changes:
        console.say(f"Changed from here on: {', '.join(changes)}.")


def _comparable(start: RunStarted) -> dict[str, Any]:
    """Return the settings as the log has them, without what follows from where the program was started."""
    shown = {name: value for name, value in start.settings.items() if name not in ("protected", "workspace", "said")}
    more = {"model": start.model, "window": start.window, "api_budget": start.task.budget}
    compared: dict[str, Any] = json.loads(json.dumps({**shown, **more}))
    return compared


def replies(settings: Settings, run: str) -> list[Event]:
    """Return the replies of the run's own agent that count."""
    events = [event for event in read(settings.state_dir, run, (Thought, Rejected, Rewound)) if not event.agent]
    found = effective(events, [event for event in events if isinstance(event, Rewound)])
    return [event for event in found if isinstance(event, (Thought, Rejected))]


def _ends(state_dir: Path, run: str) -> tuple[RunStarted | None, Ended | None]:
    """Return the newest start of a run and the end after it, as far as they exist."""
    began, ended = None, None
    for event in read(state_dir, run, (RunStarted, Resumed, Changed, Rewound, Ended)):
        if event.agent:
            continue
        if isinstance(event, Ended):
            ended = event
        else:
            began, ended = event if isinstance(event, RunStarted) else began, None
    return began, ended
