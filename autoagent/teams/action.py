"""Define a role's actions: ask the model with a prompt, run a Python function, or use commands as an agent."""

from __future__ import annotations

import inspect
import json
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from autoagent.core.errors import SettingsError
from autoagent.core.task import Goal
from autoagent.teams.llm import Llm, fill_fields
from autoagent.teams.message import Message
from autoagent.text.quoting import mark_untrusted

if TYPE_CHECKING:
    from autoagent.commands.registry import Command

Tool: TypeAlias = "str | Command | Callable[..., Any]"
"""A tool of a role: the name of a command, a command made by `@command`, or a plain function."""

_PLACEHOLDER = re.compile(r"(\{context\}|\{news\}|\{last\}|\{idea\})")
"""The placeholders of a prompt: everything the role has read, the news, the newest message, the user's idea."""

_DECORATION = " \t*_`#>.!:'\""  # ignored around the text of a condition

OUTSIDE_WORKSPACE = "is outside of the workspace; name a file relative to that, such as notes/a.md."


class Action:
    """Define an action. Use it directly, or derive from it. Its `run` may be asynchronous, and may call `_aask`.

    With an `instruction`, which is sent to the model, it needs no subclass. With `commands`, it works as an agent that
    has only these commands or plain functions, until it says that it is done. Its last answer is the result. With a
    `file`, the answer is the text of that file. The program writes it as if by write_to_file, and it is the result. A
    `check` is a shell command that exits 0 once the work is done. Until then the agent continues. `model` names a model
    of the endpoint, or is empty for the role's. The result goes to `send_to`, or to all if that is empty. If a line of
    the result equals a text in `when`, it goes to the receiver named there: a role, or `end`, to end the team's work.
    With `output`, a pydantic class or a mapping of names to kinds (see llm.KINDS) or to lists of choices, the answer
    is JSON with these fields and becomes the `instruct_content`. `when` then names values of the fields.
    """

    name: str = ""
    instruction: str = ""
    commands: tuple[Tool, ...] = ()
    file: str = ""
    check: str = ""
    model: str = ""
    send_to: Any = ""
    when: Mapping[str, Any] = {}
    output: Any = None
    desc: str = ""

    config: Any = None
    i_context: Any = None

    def __init__(self, name: str | None = None, context: Any = None, llm: Llm | None = None, **attributes: Any) -> None:
        self.role: Any = None  # Role cannot be imported here, as it imports this module
        self.context = context
        self._llm = None if isinstance(llm, Llm) else llm  # an Llm stands for the role's own
        self.cause = name if name and type(self) is Action else ""
        set_attributes(self, {"name": name, **attributes})
        self.name = self.name or type(self).__name__
        self.tools: dict[str, Tool] = {}  # by name
        self.use(self.commands)
        self.model = self.model or model_in(self.config)
        if leaves_workspace(self.file):
            raise SettingsError(f"The file {self.file!r} of {self.name} {OUTSIDE_WORKSPACE}")

    def run(self, *args: Any, **more: Any) -> Any:
        """Return the result of the action, or an awaitable of it. A subclass may override this.

        By default, ask the model or work as an agent, given the instruction and what the role has read: the messages
        or texts in `args`.
        """
        if not self.instruction:
            raise SettingsError(f"The action {self.name} has no instruction: give it one, or a run of its own.")
        messages = next((arg for arg in args if isinstance(arg, Sequence) and not isinstance(arg, str)), ())
        texts = [arg for arg in args if isinstance(arg, str)]
        prompt = self._fill_placeholders([*messages, *(Message(text) for text in texts)])
        if self.file:
            return self.write_file(prompt)
        if self.commands:
            return self.use_commands(prompt)
        return fill_fields(self.llm, prompt, self.output, self.name) if self.output else self._aask(prompt)

    def use(self, tools: Iterable[Tool]) -> None:
        """Add commands and the program's own functions for it to work with."""
        self.tools |= {name_of(tool): tool for tool in tools}
        self.commands = tuple(self.tools)

    async def use_commands(self, task: str, commands: Iterable[Tool] | None = None, check: str | None = None) -> str:
        """Work on a task as an agent with these commands, or with the action's own. Return the agent's last answer.

        Each command is guarded, authorized and sandboxed as usual. `check`, or the action's own, runs in the sandbox
        without approval.
        """
        return self._work(task, check, tuple(map(name_of, commands or self.commands)), "")

    async def write_file(self, task: str, file: str | None = None, check: str | None = None) -> str:
        """Ask the model for the text of `file`, or of the action's own. Return the name and the text.

        The Markdown code block in the answer is written as if by write_to_file, guarded and authorized. The model is
        asked again until the `check`, or the action's own, passes.
        """
        return self._work(task, check, (), file or self.file)

    def _work(self, task: str, check: str | None, commands: Sequence[str], file: str) -> str:
        goal = Goal(task, (self.check if check is None else check) or None)
        return str(self._assigned_role.turn.use_commands(goal, commands, self.name, file, self.model))

    async def _aask(self, prompt: str, system_msgs: Sequence[str] | None = None) -> str:
        """Ask the role's model, with the role's prefix as the system message unless `system_msgs` replace it."""
        return await self.llm.aask(prompt, system_msgs)

    @property
    def llm(self) -> Llm:
        """Return the role's model, asked on behalf of this action."""
        llm: Llm = self._llm or self._assigned_role.llm_for(self.name, self.model)
        return llm

    @property
    def _assigned_role(self) -> Any:
        if self.role is None:
            raise SettingsError(f"The action {self.name} belongs to no role: give it to a role with set_actions.")
        return self.role

    def receivers(self, text: str) -> Any:
        """Return the receivers of a result with this text."""
        texts = map(str, json.loads(text).values()) if self.output else text.splitlines()
        lines = {line.strip(_DECORATION).casefold() for line in texts}
        return next((to for name, to in self.when.items() if name.strip(_DECORATION).casefold() in lines), self.send_to)

    def _fill_placeholders(self, messages: Sequence[Message]) -> str:
        """Return the instruction with its placeholders filled in. If it has none, put all messages before it."""
        role = self._assigned_role
        published = role.rc.env.history if role.rc.env else ()
        values: dict[str, Callable[[], str]] = {
            "{context}": lambda: transcript(messages),
            "{news}": lambda: transcript(role.rc.news or messages[-1:]),
            "{last}": lambda: transcript(messages[-1:]),
            "{idea}": lambda: next((item.content for item in (*messages, *published) if not item.sent_from), ""),
        }
        parts = _PLACEHOLDER.split(self.instruction)
        prompt = "".join(values[part]() if part in values else part for part in parts)
        if len(parts) == 1 and messages:
            prompt = f"{transcript(messages)}\n\n{prompt}"
        if not self.when or self.output:
            return prompt
        return f"{prompt}\n\nLet one line of your answer be one of these, and nothing else: {', '.join(self.when)}."

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


def name_of(tool: Tool) -> str:
    """Return the name by which a model calls a tool."""
    spec = getattr(tool, "spec", None)
    return tool if isinstance(tool, str) else str(spec.name if spec else getattr(tool, "__name__", tool))


def model_in(config: Any) -> str:
    """Return the model named by a configuration in MetaGPT's form, '' for none."""
    return str(getattr(getattr(config, "llm", None), "model", "") or "")


def leaves_workspace(file: str) -> bool:
    """Return whether a path is absolute or leads out of its base folder."""
    return file.startswith(("/", "~")) or posixpath.normpath(file).split("/")[0] == ".."


class UserRequirement(Action):
    """Represent the user's requirement, the cause of the first message."""


def transcript(messages: Iterable[Message]) -> str:
    """Format messages for a model, in order. Mark text from outside."""
    parts = []
    for message in messages:
        source = message.origin.labels.untrusted
        text = mark_untrusted(message.content, source) if source else message.content
        writer = f"{message.sent_from} ({message.role})" if message.sent_from else message.role
        parts.append(f"{writer}: {text}")
    return "\n\n".join(parts)


async def maybe_await(value: Any) -> Any:
    """Return a value, awaited if it is awaitable."""
    return await value if inspect.isawaitable(value) else value


def set_attributes(target: Any, attributes: dict[str, Any]) -> None:
    """Set these attributes on `target`. Raises SettingsError for an attribute that its class does not declare."""
    cls = type(target)
    defaults: dict[str, Any] = {}
    for base in reversed(cls.__mro__[:-1]):
        defaults |= dict.fromkeys(vars(base).get("__annotations__", ()))
        defaults |= {name: value for name, value in vars(base).items() if not callable(value)}
    for name, default in list(defaults.items()):
        if name.startswith("_") or isinstance(default, property):
            del defaults[name]
        elif isinstance(default, (list, dict, set)):
            setattr(target, name, default.copy())
    for name, value in attributes.items():
        if value is None:
            continue
        if name not in defaults:
            raise SettingsError(f"{cls.__name__} has no {name!r}; it has {', '.join(defaults)}.")
        setattr(target, name, value)
