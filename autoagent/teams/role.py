"""Define a role and its environment. A role observes, thinks and acts in each round."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import Any

from autoagent.core.errors import SettingsError
from autoagent.teams.action import Action, Tool, UserRequirement, maybe_await, set_attributes, transcript
from autoagent.teams.llm import CURRENT_TURN, Llm, Turn
from autoagent.teams.memory import Memory
from autoagent.teams.message import Message, cause_of
from autoagent.teams.plan import run_plan

_NUMBER = re.compile(r"-?\d+")
_CHOICE = """\
This is what you have read and said so far. It tells you where the work stands and is not addressed to you.
===
{history}
===

Your last step: {previous}

These steps are open to you:
{states}

Which of them comes next? Answer with its number alone, from 0 to {last}, or with -1 if nothing is left to do.
"""


class RoleReactMode(StrEnum):
    """Select the order in which a role takes its actions."""

    REACT = "react"
    BY_ORDER = "by_order"
    PLAN_AND_ACT = "plan_and_act"

    @classmethod
    def of(cls, name: str, problem: str) -> RoleReactMode:
        """Return the mode of this name. Raises SettingsError, which begins with `problem`, for any other name."""
        *names, last_name = cls
        if name not in (*names, last_name):
            raise SettingsError(f"{problem} is unknown; use {', '.join(names)} or {last_name}.")
        return cls(name)


@dataclass(slots=True)
class RoleContext:
    """The state of a role.

    `news` are the watched messages that it has not acted on yet. `state` is the number of `todo`, -1 for none.
    """

    memory: Memory = field(default_factory=Memory)
    working_memory: Memory = field(default_factory=Memory)
    env: Environment | None = None
    state: int = -1
    todo: Action | None = None
    watch: set[str] = field(default_factory=set)
    news: list[Message] = field(default_factory=list)
    react_mode: str = RoleReactMode.REACT
    max_react_loop: int = 1

    @property
    def history(self) -> list[Message]:
        """Return all messages that the role has read and written."""
        return self.memory.get()

    @property
    def important_memory(self) -> list[Message]:
        """Return the watched messages in its memory."""
        return self.memory.get_by_actions(self.watch)


class Role:
    """Act as a role of a team. Use it directly, or derive from it.

    Args:
        desc: replaces the whole sentence that describes the role.
        is_human: whether a person answers instead of its model.
        actions, watch: as `set_actions` and `watch` take them.
        react_mode: `react`, `by_order` or `plan_and_act`.
        max_react_loop: the maximum number of actions in a turn with `react`.
        model: the endpoint's model that answers, empty for the run's model.
        tools: commands and the program's own functions, for all its actions that have an instruction but no file.
    """

    name: str = ""
    profile: str = ""
    goal: str = ""
    constraints: str = ""
    desc: str = ""
    is_human: bool = False
    model: str = ""
    tools: tuple[Tool, ...] = ()
    observe_all_msg_from_buffer: bool = True  # otherwise it remembers only its news

    def __init__(
        self,
        name: str | None = None,
        profile: str | None = None,
        goal: str | None = None,
        constraints: str | None = None,
        desc: str | None = None,
        is_human: bool | None = None,
        **attributes: Any,
    ) -> None:
        self.rc = RoleContext()
        self.actions: list[Action] = []
        self.states: list[str] = []
        self.active_turn: Turn | None = None  # its turn, while its team runs
        self.messages_seen = 0  # how many of the environment's messages it has read
        actions, watch = attributes.pop("actions", ()), attributes.pop("watch", (UserRequirement,))
        mode, loop = attributes.pop("react_mode", RoleReactMode.REACT), attributes.pop("max_react_loop", 1)
        texts = {"name": name, "profile": profile, "goal": goal, "constraints": constraints, "desc": desc}
        set_attributes(self, {**texts, "is_human": is_human, **attributes})
        self.name = self.name or self.profile or type(self).__name__
        self.profile = self.profile or self.name
        self.set_actions(actions)
        self.watch(watch)
        self.set_react_mode(mode, loop)

    @property
    def prefix(self) -> str:
        """Return the sentence that describes the role."""
        if self.desc:
            return self.desc
        goal = f", your goal is {self.goal}" if self.goal else ""
        constraints = f", and the constraint is {self.constraints}" if self.constraints else ""
        sentence = f"You are a {self.profile}, named {self.name}{goal}{constraints}"
        if self.rc.env is None or not self.rc.env.desc:
            return sentence
        others = ", ".join(name for name in self.rc.env.role_names() if name != self.name)
        return f"{sentence}. You are in {self.rc.env.desc}{f', with {others}' if others else ''}."

    @property
    def addresses(self) -> set[str]:
        """Return the addresses at which messages reach the role."""
        return {self.name, self.profile, cause_of(type(self))}

    @property
    def llm(self) -> Llm:
        """Return its model, which is asked on behalf of its next action."""
        return self.llm_for(self.rc.todo.name if self.rc.todo else self.profile)

    def llm_for(self, purpose: str, model: str = "") -> Llm:
        """Return its model, or the named model, asked for this purpose."""

        async def ask(prompt: str, system: str) -> str:
            return await self.turn.aask(prompt, system or self.prefix, purpose, model)

        return Llm(ask)

    def set_actions(self, actions: Iterable[Action | type[Action]]) -> None:
        """Set its actions, numbered as its states."""
        self.actions, self.states = [], []
        for number, item in enumerate(actions):
            action = item() if isinstance(item, type) else item
            action.role = self
            if action.instruction and not action.file:
                action.use(self.tools)
            self.actions.append(action)
            self.states.append(f"{number}. {action}")

    def set_action(self, action: Action | type[Action]) -> None:
        self.set_actions([*self.actions, action])

    def watch(self, actions: Iterable[Any]) -> None:
        """Make it watch for messages caused by these actions."""
        self.rc.watch = {cause_of(action) for action in actions}

    def set_react_mode(self, react_mode: str, max_react_loop: int = 1) -> None:
        """Set the order in which it takes its actions. Raises SettingsError for an unknown mode."""
        self.rc.react_mode = RoleReactMode.of(react_mode, f"The react_mode {str(react_mode)!r}")
        self.rc.max_react_loop = max_react_loop

    def get_memories(self, k: int = 0) -> list[Message]:
        """Return the newest k messages that it has read or written, or all if k is 0."""
        return self.rc.memory.get(k)

    async def run(self) -> Message | None:
        """Take a turn: act if there is news, and publish the result. Return the result, or None if there is none."""
        if not await maybe_await(self._observe()):
            return None
        result: Message | None = await maybe_await(self.react())
        self._set_state(-1)
        if result is not None:
            self.publish_message(result)
        return result

    async def _observe(self) -> int:
        """Return how many news items it has: new messages that it watches for or that are addressed to it."""
        return len(self.rc.news)

    async def react(self) -> Message | None:
        """Act according to its mode. Return the result of the last action, or None if there was none."""
        result: Message | None = None
        if self.rc.react_mode == RoleReactMode.BY_ORDER:
            for state in range(max(self.rc.state, 0), len(self.actions)):
                self._set_state(state)
                result = await maybe_await(self._act())
        elif self.rc.react_mode != RoleReactMode.PLAN_AND_ACT:
            result = await maybe_await(self._react())
        elif self.actions:
            plan = await run_plan(transcript(self.rc.history), self.llm_for, self._work_on)
            result = self.as_message(plan, self.actions[-1])
            self.rc.memory.add(result)
        return result

    async def _react(self) -> Message | None:
        """Choose and take actions until none is left to take, or `max_react_loop` is reached."""
        result = None
        for _ in range(self.rc.max_react_loop):
            if not await maybe_await(self._think()):
                break
            result = await maybe_await(self._act())
        return result

    async def _work_on(self, task: str, results: list[Message]) -> str:
        """Work on a task of a plan with the action that fits it. Return its result as text."""
        messages = [*self.rc.news, *results, Message(task, "task")]
        self._set_state(0 if len(self.actions) == 1 else max(0, await self.choose(transcript(messages))))
        assert self.rc.todo is not None
        return self.as_message(await maybe_await(self.rc.todo.run(messages)), self.rc.todo).content

    async def _think(self) -> bool:
        """Choose the next action, by the model if there are several. Return whether there is an action to take."""
        if len(self.actions) == 1:
            self._set_state(0)
            return True
        self._set_state(await self.choose(transcript(self.rc.history)) if self.actions else -1)
        return self.rc.todo is not None

    async def choose(self, history: str) -> int:
        """Return the model's choice of the next state, -1 for none or an unusable answer."""
        previous = self.states[self.rc.state] if self.rc.state >= 0 else "none yet"
        states, last = "\n".join(self.states), len(self.states) - 1
        prompt = _CHOICE.format(history=history, previous=previous, states=states, last=last)
        match = _NUMBER.search(await self.llm_for("choice").aask(prompt))
        number = int(match[0]) if match and len(match[0]) < 9 else -1
        return number if 0 <= number <= last else -1

    async def _act(self) -> Message:
        """Take the chosen action. Remember its result and return it."""
        assert self.rc.todo is not None
        result = self.as_message(await maybe_await(self.rc.todo.run(self.rc.history)), self.rc.todo)
        self.rc.memory.add(result)
        return result

    def as_message(self, result: Any, action: Action) -> Message:
        """Return the result of an action as a message of this role."""
        if isinstance(result, Message):
            return result
        extra = getattr(result, "instruct_content", None)
        text = result.content if extra is not None else "" if result is None else str(result)
        return Message(text, self.profile, action, self, action.receivers(text), instruct_content=extra)

    def _set_state(self, state: int) -> None:
        self.rc.state = state
        self.rc.todo = self.actions[state] if state >= 0 else None

    def set_todo(self, value: Action | None) -> None:
        self.rc.todo = value
        self.rc.state = self.actions.index(value) if value in self.actions else -1

    def publish_message(self, message: Message | None) -> None:
        """Publish a message for all to read once the round has ended."""
        if message is not None:
            self.turn.publish(message)

    @property
    def turn(self) -> Turn:
        """Return its current turn. Raises SettingsError outside of a running team."""
        if self.active_turn is None:
            raise SettingsError(f"{self.name} is not at work: hire it into a team, and run the team.")
        return self.active_turn

    def read(self, published: Sequence[Message]) -> bool:
        """Read the newly published messages. Return whether there may be something to act on.

        A class that overrides `_observe` decides for itself.
        """
        unread, news = self._unread(published)
        self.messages_seen = len(published)
        self.rc.news += news
        for message in unread if self.observe_all_msg_from_buffer else news:
            self.rc.memory.read(message)
        return bool(self.rc.news) or (bool(unread) and type(self)._observe is not Role._observe)

    @property
    def is_idle(self) -> bool:
        """Return whether neither its news nor the published messages give it anything to do."""
        unread, news = self._unread(self.rc.env.history.get() if self.rc.env else ())
        return not (self.rc.news or self.rc.todo or (news if type(self)._observe is Role._observe else unread))

    def _unread(self, published: Sequence[Message]) -> tuple[list[Message], list[Message]]:
        """Return the messages to this role that it has not read, and those of them that it acts on."""
        unread = [message for message in published[self.messages_seen :] if message.is_for(self.addresses)]
        new = self.rc.memory.find_news(unread)
        return unread, [each for each in new if each.cause_by in self.rc.watch or self.name in each.send_to]

    # MetaGPT's names ---------------------------------------------------------------------------------------------

    _watch = watch
    _init_actions = set_actions
    _set_react_mode = set_react_mode
    _publish_message = publish_message

    def __str__(self) -> str:
        return f"{self.name}({self.profile})"

    def _get_prefix(self) -> str:
        return self.prefix

    _rc = property(attrgetter("rc"))
    _setting = property(str)


class Environment:
    """Roles in hiring order, the messages they published, and the number of the last round."""

    def __init__(self, desc: str = "", roles: Iterable[Role] = ()) -> None:
        self.desc = desc
        self.roles: list[Role] = []
        self.history = Memory()
        self.round = 0
        self.add_roles(roles)

    def add_role(self, role: Role) -> None:
        """Add a role. Several may share a profile or a name. Raises SettingsError for a role that is already hired."""
        if role in self.roles:
            raise SettingsError(f"{role.name} is already hired.")
        role.rc.env = self
        self.roles.append(role)

    def add_roles(self, roles: Iterable[Role]) -> None:
        for role in roles:
            self.add_role(role)

    def get_role(self, name: str) -> Role | None:
        """Return the role of this name, or else of this profile, or None."""
        return next(
            (role for attribute in ("name", "profile") for role in self.roles if getattr(role, attribute) == name), None
        )

    def role_names(self) -> list[str]:
        return [role.name for role in self.roles]

    @property
    def is_idle(self) -> bool:
        """Return whether no role has news to act on."""
        return all(role.is_idle for role in self.roles)

    def publish_message(self, message: Message, peekable: bool = True) -> bool:
        """Publish a message for all to read once the round has ended.

        Ignore `peekable`, and a message that is already published, as MetaGPT does.
        """
        if (turn := CURRENT_TURN.get()) is not None:
            turn.publish(message)
        else:
            self.history.add(message)
        return True

    def __repr__(self) -> str:
        return f"Environment({', '.join(map(str, self.roles))})"
