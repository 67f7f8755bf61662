"""Ask the questions before the first step: the model, and the agent's name, role and goals."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from autoagent.core.errors import ModelError, SetupError, StopRun
from autoagent.core.frozen import dataclass
from autoagent.core.model import Message
from autoagent.core.task import MAX_GOALS, Goal, Outcome, Status, Task
from autoagent.models.servers import HOSTED, USUAL_PORTS, Hosted, Server, list_models
from autoagent.registry.models import PROVIDERS, Provider
from autoagent.settings import Settings
from autoagent.terminal.answers import ClickTerminal
from autoagent.text.typed_goal import describe_check, parse_and_explain

DEFAULT_NAME = "Entrepreneur-GPT"
PLAIN_ROLE = "an autonomous agent that reaches the goals it is given"  # for goals without a role
NO_MODEL = "no model is set up: set OPENAI_API_KEY or OPENAI_BASE_URL, or pass --model local or --demo"
MAX_NAMED_MODELS = 20
WISH_NAME = "AutoAgent"  # if a wish becomes the goal

# The exact parts of a wish: quotations, numbers, file names.
_EXACT = re.compile(
    r"""(?<!\w)["'“„«`]([^"'”“»`\n]+)["'”“»`](?!\w)|(?<![\w.,])(\d+(?:[.,:]\d+)*)(?!\w)"""
    r"""|(?<![\w:/@.-])([\w-][\w./-]*\.[A-Za-z]\w{0,9})(?![\w/-]|\.\w)"""
)


def ask_task(terminal: ClickTerminal, propose: Callable[[str], str] | None = None) -> Task:
    """Ask for the task: one wish for `propose` to turn into a model's text, or each part in turn.

    Without `propose`, or a wish, everything is asked. Raises StopRun at the end of input, and any error of `propose`
    except ModelError.
    """
    try:
        if propose is not None:
            terminal.say("Say in one sentence what the agent should do, or press Enter to give name, role and goals.")
            while (wish := terminal.ask("I want it to: ").strip()).lower() not in ("", "manual", "--manual"):
                if (task := task_of_wish(terminal, propose, wish)) is not None:
                    return task
        return _ask_one_by_one(terminal)
    except EOFError:
        raise no_answer_error("pass --ai-name, --ai-role and --ai-goal, or a saved ai_settings.yaml with -y") from None


def task_of_wish(
    terminal: ClickTerminal, propose: Callable[[str], str] | None, wish: str, *, asks: bool = True
) -> Task | None:
    """Return the task that `propose` makes of a wish, the wish as its goal if that fails, or None if refused.

    A person sees the task once, and may edit it if `asks`. Raises EOFError, and any error of `propose` except
    ModelError.
    """
    proposal = _propose_task(terminal, propose, wish) if propose is not None else None
    task = proposal or Task(WISH_NAME, PLAIN_ROLE, (parse_and_explain(wish, terminal.say, is_shown=True),))
    show_task(terminal, task)
    if not (asks and terminal.interactive):
        return task
    answer = _ask_word(terminal, "Start with this? (y = yes, e = edit, n = no)", "yes", "edit", "no")
    return _ask_one_by_one(terminal, task) if answer == "edit" else task if answer == "yes" else None


def _propose_task(terminal: ClickTerminal, propose: Callable[[str], str], wish: str) -> Task | None:
    try:
        task = parse_proposal(propose(wish))
    except ModelError as error:
        terminal.say(f"The model could not be asked: {error}. Your text becomes the goal.")
        return None
    if task is None:
        terminal.say("The model's proposal cannot be used; your text becomes the goal.")
        return None
    goals = "\n".join(goal.text for goal in task.goals)
    exact = dict.fromkeys(match[1] or match[2] or match[3] for match in _EXACT.finditer(wish))
    if lost := [part for part in exact if not re.search(rf"(?<![\w./-]){re.escape(part)}(?![\w-])", goals)]:
        terminal.say(f"The model's goals leave out {', '.join(map(repr, lost))}; your text becomes the goal.")
        return replace(task, goals=(parse_and_explain(wish, terminal.say, is_shown=True),))
    if left_out := task.goals[MAX_GOALS:]:
        texts = "; ".join(goal.text for goal in left_out)
        terminal.say(f"The model proposed {len(task.goals)} goals; the first {MAX_GOALS} are kept, without: {texts}")
    return replace(task, goals=task.goals[:MAX_GOALS])


def _ask_one_by_one(terminal: ClickTerminal, so_far: Task | None = None) -> Task:
    terminal.say("Enter accepts the default.")
    default = so_far or Task(WISH_NAME, PLAIN_ROLE, ())
    name = terminal.ask(f"Name of the AI [{default.name}]: ", default.name).strip() or default.name
    role = terminal.ask(f"{name} is [{default.role}]: ", default.role).strip() or default.role
    if so_far is not None:
        return replace(so_far, name=name, role=role, goals=_edit_goals(terminal, so_far.goals))
    terminal.say(f"1 to {MAX_GOALS} goals; Enter ends.")
    goals: list[Goal] = []
    while len(goals) < MAX_GOALS and ((line := terminal.ask(f"Goal {len(goals) + 1}: ").strip()) or not goals):
        if not line:
            terminal.say("Please give at least one goal.")
            continue
        goals.append(parse_and_explain(line, terminal.say))
    return Task(name, role, tuple(goals))


def _edit_goals(terminal: ClickTerminal, so_far: Sequence[Goal]) -> tuple[Goal, ...]:
    """Ask about each goal, then for more. If none is left, keep them all unchanged."""
    terminal.say(f"Up to {MAX_GOALS} goals; Enter keeps a goal, - drops it, and Enter alone ends.")
    goals: list[Goal] = []
    for number in range(MAX_GOALS):
        old = so_far[number] if number < len(so_far) else None
        line = terminal.ask(f"Goal {number + 1}{f' [{old}]' if old else ''}: ").strip()
        if line and line != "-":
            goals.append(parse_and_explain(line, terminal.say, is_shown=True))
        elif old is not None and not line:
            goals.append(old)
        elif old is None:
            break
    return tuple(goals) or tuple(so_far)


def show_task(terminal: ClickTerminal, task: Task) -> None:
    """Show name, role and goals, a line each."""
    terminal.say(f"Name:  {task.name}")
    terminal.say(f"Role:  {task.role}")
    terminal.say("Goals:")
    for goal in task.goals:
        terminal.say(f"  - {goal.text}")
        if goal.check:
            terminal.say(f"    check: {describe_check(goal.check)}")


def welcome_back(terminal: ClickTerminal, task: Task, path: object) -> Task | None:
    """Return the task saved at `path`, perhaps edited, or None for another task. Raises StopRun without an answer."""
    terminal.say(f"Welcome back! Would you like me to return to being {task.name}?")
    show_task(terminal, task)
    try:
        answer = _ask_word(terminal, f"Continue with the last settings ({path})? (y/n, e = edit)", "yes", "no", "edit")
        return _ask_one_by_one(terminal, task) if answer == "edit" else task if answer == "yes" else None
    except EOFError:
        raise no_answer_error("pass -y to use the saved settings") from None


def proposal_messages(wish: str) -> tuple[Message, ...]:
    """Return the prompt that asks a model for name, role and goals. `parse_proposal` reads the answer."""
    system = (
        "You set up an autonomous agent. From the user's wish, think of a short name for it that ends in GPT, its role "
        f"in one sentence that begins with 'an AI', and 1 to {MAX_GOALS} goals that together fulfil the wish and "
        "nothing else. Keep every file name, number and quotation of the wish.\n"
        'Answer with JSON only: {"name": "...", "role": "an AI ...", "goals": ["...", "..."]}'
    )
    return Message("system", system), Message("user", wish)


def parse_proposal(text: str) -> Task | None:
    """Read the task in a model's answer.

    The answer is JSON, or lines `Name:`, `Description:` (or `Role:`) and `Goals:` with `- ` items. Return None if name,
    role or goals are missing or only echo the prompt's form. There may be too many goals.
    """
    try:
        members, _ = json.JSONDecoder(strict=False).raw_decode(text, text.index("{"))
    except ValueError:
        members = {}
    fields = {_FIELD_ALIASES.get(key.lower(), key.lower()): value for key, value in members.items()} or _proposal_lines(
        text
    )
    name, role, goals = fields.get("name"), fields.get("role"), fields.get("goals")
    if isinstance(goals, str):
        goals = [goals]
    if not isinstance(name, str) or not isinstance(role, str) or not isinstance(goals, list):
        return None
    texts = [name, role, *goals]
    if not goals or not all(
        isinstance(text, str) and re.search(r"\w", text) and not re.fullmatch(r"\s*[<\[].*[>\]]\s*", text)
        for text in texts
    ):
        return None
    return Task(name.strip(), role.strip(), tuple(Goal(" ".join(goal.split())) for goal in goals))


_FIELD_ALIASES = {"ai_name": "name", "description": "role", "ai_role": "role", "ai_goals": "goals"}


def _proposal_lines(text: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for line in text.splitlines():
        plain = line.replace("*", "").strip()  # some models write the labels in bold
        label, colon, rest = plain.partition(":")
        key = label.strip().lower()
        key = _FIELD_ALIASES.get(key, key)
        if colon and key in ("name", "role", "goals") and key not in fields:
            fields[key] = [] if key == "goals" else rest.strip()
        elif "goals" in fields and (item := re.match(r"(?:[-•]|\d{1,2}[.)])\s*(.+)", plain)):
            fields["goals"].append(item[1])
    return fields


@dataclass(frozen=True, slots=True)
class Choice:
    """The choice made in the menu: environment variables to set, and whether to save them in `.env`."""

    env: Mapping[str, str]
    save: bool = False


def model_is_chosen(settings: Settings) -> bool:
    """Return whether the settings choose a model. If not, the menu asks."""
    return bool(settings.model or settings.openai_api_key or settings.openai_base_url)


def choose_model(terminal: ClickTerminal, find: Callable[[], Sequence[Server]]) -> Choice:
    """Show the first-run menu. `find` looks for servers on this machine, only on request.

    Raises SetupError at the end of input, as no model is set up.
    """
    terminal.say("No model is set up yet. Which model do you want to use?")
    offers: list[tuple[str, Callable[[], Choice]]] = [
        *(
            (f"{hosted.name}, with your API key ({hosted.key_variable})", partial(_choose_hosted, terminal, hosted))
            for hosted in HOSTED
        ),
        (f"a local or OpenAI-compatible server ({', '.join(USUAL_PORTS)})", lambda: _choose_server(terminal, find())),
        *((kind.offered, partial(_choose_provider, terminal, kind)) for kind in PROVIDERS.builtin if kind.offered),
    ]
    menu = {str(number): choose for number, (_, choose) in enumerate(offers, 1)}
    for number, (label, _) in enumerate(offers, 1):
        terminal.say(f" {number:>2}  {label}")
    try:
        while (answer := terminal.ask(f"1-{len(menu)}: ").strip()) not in menu:
            terminal.say(f"Please answer with a number from 1 to {len(menu)}.")
        return menu[answer]()
    except EOFError:
        raise SetupError(NO_MODEL) from None


def _choose_hosted(terminal: ClickTerminal, hosted: Hosted) -> Choice:
    terminal.say(f"Keys are made at {hosted.keys_url}; what you type shows as stars.")
    env_key = os.environ.get(hosted.key_variable, "")
    prompt = f"API key, Enter for {hosted.key_variable}: " if env_key else "API key: "
    while not re.fullmatch(r"[!-~]{8,}", key := terminal.secret(prompt).strip() or env_key):
        terminal.say("That is not a key: it is one word of at least 8 characters, such as sk-...")
    if hosted == HOSTED[0]:
        return _ask_to_save(terminal, {"OPENAI_API_KEY": key})
    model = pick_model(terminal, list_models(hosted.base_url, key, timeout=5.0).models, default=False)
    env = {"OPENAI_BASE_URL": hosted.base_url, "OPENAI_API_KEY": key, "SMART_LLM": model, "FAST_LLM": model}
    return _ask_to_save(terminal, env)


def pick_model(terminal: ClickTerminal, models: Sequence[str], *, default: bool = True) -> str:
    """Ask for one of an endpoint's models. Raises EOFError at the end of input."""
    if models:
        more = f" and {len(models) - MAX_NAMED_MODELS:,} more" if len(models) > MAX_NAMED_MODELS else ""
        terminal.say(f"It offers: {', '.join(models[:MAX_NAMED_MODELS])}{more}")
    first = models[0] if models and default else ""
    while not (model := terminal.ask(f"Model{f' [{first}]' if first else ''}: ", first).strip()):
        terminal.say("Please give the model's name as the server knows it.")
    return model


def _choose_server(terminal: ClickTerminal, servers: Sequence[Server]) -> Choice:
    for server in servers:
        terminal.say(f"  {server.name} at {server.base_url}: {', '.join(server.models) or 'no model loaded'}")
    if not servers:
        terminal.say("  None was found on the usual ports of this machine.")
    default = servers[0].base_url if servers else ""
    hint = f" [{default}]" if default else ", such as http://127.0.0.1:8080/v1"
    while not (base_url := terminal.ask(f"Address{hint}: ", default).strip()).startswith(("http://", "https://")):
        terminal.say("The address begins with http:// or https://, and most end in /v1.")
    models_by_url = {server.base_url: server.models for server in servers}
    key = "" if base_url in models_by_url else terminal.secret("API key, Enter for none: ").strip()
    models = models_by_url[base_url] if base_url in models_by_url else list_models(base_url, key, timeout=5.0).models
    model = pick_model(terminal, models)
    env = {"OPENAI_BASE_URL": base_url, "SMART_LLM": model, "FAST_LLM": model}
    return _ask_to_save(terminal, {**env, "OPENAI_API_KEY": key} if key else env)


def _choose_provider(terminal: ClickTerminal, provider: Provider) -> Choice:
    """Return the choice of this provider. It is not saved if the provider does a single task."""
    env = {"AUTOAGENT_MODEL": provider.name}
    return _ask_to_save(terminal, env) if provider.task is None else Choice(env)


def _ask_to_save(terminal: ClickTerminal, env: Mapping[str, str]) -> Choice:
    question = "Keep this in .env in this folder, readable by you alone? (y/n)"
    return Choice(env, save=_ask_word(terminal, question, "yes", "no") == "yes")


def _ask_word(terminal: ClickTerminal, question: str, *words: str) -> str:
    """Return the chosen word, answered in full or by its first letter. Enter chooses the first."""
    letters = [word[0] for word in words]
    word_by_answer = {**dict(zip(letters, words, strict=True)), **{word: word for word in words}}
    while (answer := terminal.ask(f"{question} [{letters[0]}]: ", letters[0]).strip().lower()) not in word_by_answer:
        terminal.say(f"Please answer {', '.join(letters[:-1])} or {letters[-1]}.")
    return word_by_answer[answer]


def no_answer_error(advice: str) -> StopRun:
    """Return the error that ends the program when the input has ended at a question."""
    return StopRun(Outcome(Status.UNANSWERED, f"an answer was needed and the input has ended; {advice}"))
