"""A role: who it is, what it can do, whose messages it watches for. It observes, thinks and acts, once a round."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from autoagent.core.errors import SettingsError
from autoagent.teams.action import Action, UserRequirement, settled, take_over, told
from autoagent.teams.llm import Llm
from autoagent.teams.memory import Memory
from autoagent.teams.message import Message, cause_of

if TYPE_CHECKING:
    from autoagent.core.task import Goal
    from autoagent.teams.environment import Environment
    from autoagent.teams.tools import Tool

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
    """The order in which a role takes its actions."""

    REACT = "react"
    BY_ORDER = "by_order"
    PLAN_AND_ACT = "plan_and_act"

    @classmethod
    def values(cls) -> list[str]:
        """Return the three modes."""
        return [mode.value for mode in cls]


class Turn(Protocol):
    """The turn of a role, in a thread of its own. All methods raise StopRun if the team is to end."""

    async def aask(self, prompt: str, system: str, purpose: str, model: str = "") -> str:
        """Return the answer of this model, of the role's where none is named, or of the person in its place.

        Questions asked at once (asyncio.gather) are answered side by side, each with an equal share of the money left.
        """

    def use_commands(
        self, goal: Goal, commands: Sequence[str], purpose: str, *, file: str = "", model: str = ""
    ) -> str:
        """Work on a goal as an agent. Return what it says in the end, or the text of the `file` that it is to write."""

    def publish(self, message: Message) -> None:
        """Write a message, which all can read once the round has ended."""


@dataclass(slots=True)
class RoleContext:
    """The state of a role.

    `news` are the messages it watches for and has not acted on. `state` is the number of `todo`, -1 for none.
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
        """All that the role has read and said."""
        return self.memory.get()

    @property
    def important_memory(self) -> list[Message]:
        """The messages it has watched for."""
        return self.memory.get_by_actions(self.watch)


class Role:
    """A role of a team, for a class of one's own to derive from, or as it is.

    Args:
        desc: what takes the place of the whole sentence that says who it is.
        is_human: a person answers in the place of its model.
        actions, watch: as `set_actions` and `watch` take them.
        react_mode: `react`, `by_order` or `plan_and_act`.
        max_react_loop: how many actions it takes in a turn at most, by `react`.
        model: the endpoint's model that answers, or empty for that of the run.
        tools: commands, and functions of the program's own, that all its actions with an instruction work with.
    """

    name: str = ""
    profile: str = ""
    goal: str = ""
    constraints: str = ""
    desc: str = ""
    is_human: bool = False
    model: str = ""
    tools: tuple[Tool, ...] = ()
    observe_all_msg_from_buffer: bool = True  # else it remembers only what it watches for, or what names it

    def __init__(
        self,
        name: str | None = None,
        profile: str | None = None,
        goal: str | None = None,
        constraints: str | None = None,
        desc: str | None = None,
        is_human: bool | None = None,
        **given: Any,
    ) -> None:
        self.rc = RoleContext()
        self.actions: list[Action] = []
        self.states: list[str] = []
        self._turn: Turn | None = None
        self._read = 0  # of the messages of the environment
        actions, watch = given.pop("actions", ()), given.pop("watch", (UserRequirement,))
        mode, loop = given.pop("react_mode", RoleReactMode.REACT), given.pop("max_react_loop", 1)
        own = {"name": name, "profile": profile, "goal": goal, "constraints": constraints, "desc": desc}
        take_over(self, {**own, "is_human": is_human, **given})
        self.name = self.name or self.profile or type(self).__name__
        self.profile = self.profile or self.name
        self.set_actions(actions)
        self.watch(watch)
        self.set_react_mode(mode, loop)

    # Who it is ---------------------------------------------------------------------------------------------------

    @property
    def prefix(self) -> str:
        """The sentence that says who the role is."""
        if self.desc:
            return self.desc
        goal = f", your goal is {self.goal}" if self.goal else ""
        constraints = f", and the constraint is {self.constraints}" if self.constraints else ""
        said = f"You are a {self.profile}, named {self.name}{goal}{constraints}"
        if self.rc.env is None or not self.rc.env.desc:
            return said
        others = ", ".join(name for name in self.rc.env.role_names() if name != self.name)
        return f"{said}. You are in {self.rc.env.desc}{f', with {others}' if others else ''}."

    @property
    def addresses(self) -> set[str]:
        """The names under which messages reach it."""
        return {self.name, self.profile, cause_of(type(self))}

    @property
    def llm(self) -> Llm:
        """Its model, asked in the name of what it is about to do."""
        return self.llm_for(self.rc.todo.name if self.rc.todo else self.profile)

    def llm_for(self, purpose: str, model: str = "") -> Llm:
        """Return its model, or the one that is named, asked in the name of an action."""
        return Llm(self, purpose, model)

    def set_actions(self, actions: Iterable[Action | type[Action]]) -> None:
        """Give it its actions, numbered as its states."""
        self.actions, self.states = [], []
        for number, given in enumerate(actions):
            action = given() if isinstance(given, type) else given
            action.role = self
            if action.instruction and not action.file:
                action.use(self.tools)
            self.actions.append(action)
            self.states.append(f"{number}. {action}")

    def set_action(self, action: Action | type[Action]) -> None:
        """Give it one more action."""
        self.set_actions([*self.actions, action])

    def watch(self, actions: Iterable[Any]) -> None:
        """Let it watch for the messages that these actions cause."""
        self.rc.watch = {cause_of(action) for action in actions}

    def set_react_mode(self, react_mode: str, max_react_loop: int = 1) -> None:
        """Set how it goes about its actions. Raises SettingsError for a mode that there is not."""
        if react_mode not in RoleReactMode.values():
            *most, last = RoleReactMode.values()
            raise SettingsError(f"The react_mode {str(react_mode)!r} is none; use {', '.join(most)} or {last}.")
        self.rc.react_mode = RoleReactMode(react_mode)
        self.rc.max_react_loop = max_react_loop

    def get_memories(self, k: int = 0) -> list[Message]:
        """Return the newest k messages that it has read or said, all of them with 0."""
        return self.rc.memory.get(k)

    # A turn ------------------------------------------------------------------------------------------------------

    async def run(self) -> Message | None:
        """Take a turn: act if there is news, and publish what comes of it. Return that, or None if it waits."""
        if not await settled(self._observe()):
            return None
        said: Message | None = await settled(self.react())
        self._set_state(-1)
        if said is not None:
            self.publish_message(said)
        return said

    async def _observe(self) -> int:
        """Return how much news there is: the messages it watches for, or that name it, and did not know."""
        return len(self.rc.news)

    async def react(self) -> Message | None:
        """Act by its mode. Return what came of the last action, None if it took none."""
        if self.rc.react_mode == RoleReactMode.BY_ORDER:
            return await self._act_by_order()
        if self.rc.react_mode == RoleReactMode.PLAN_AND_ACT:
            return await self._plan_and_act()
        said: Message | None = await settled(self._react())
        return said

    async def _react(self) -> Message | None:
        """Choose an action and take it, until there is none to take or there were enough."""
        said = None
        for _ in range(self.rc.max_react_loop):
            if not await settled(self._think()):
                break
            said = await settled(self._act())
        return said

    async def _act_by_order(self) -> Message | None:
        """Take each action once."""
        said = None
        for state in range(max(self.rc.state, 0), len(self.actions)):
            self._set_state(state)
            said = await settled(self._act())
        return said

    async def _plan_and_act(self) -> Message | None:
        """Have a plan written, work on its tasks, have each reviewed."""
        from autoagent.teams.plan import plan_and_act

        return await plan_and_act(self)

    async def _think(self) -> bool:
        """Choose what to do next. The model is asked if there is a choice. Returns whether there is anything to do."""
        if len(self.actions) == 1:
            self._set_state(0)
            return True
        self._set_state(await self.choose(told(self.rc.history)) if self.actions else -1)
        return self.rc.todo is not None

    async def choose(self, history: str) -> int:
        """Return the number of the state that the model wants next, -1 for none or an unusable answer."""
        previous = self.states[self.rc.state] if self.rc.state >= 0 else "none yet"
        states, last = "\n".join(self.states), len(self.states) - 1
        prompt = _CHOICE.format(history=history, previous=previous, states=states, last=last)
        found = _NUMBER.search(await self.llm_for("choice").aask(prompt))
        number = int(found[0]) if found and len(found[0]) < 9 else -1
        return number if 0 <= number <= last else -1

    async def _act(self) -> Message:
        """Take the action that was chosen. Remember what came of it, and return it."""
        assert self.rc.todo is not None
        said = self.said(await settled(self.rc.todo.run(self.rc.history)), self.rc.todo)
        self.rc.memory.add(said)
        return said

    def said(self, result: Any, action: Action) -> Message:
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
        """Set what it is about to do."""
        self.rc.todo = value
        self.rc.state = self.actions.index(value) if value in self.actions else -1

    def publish_message(self, message: Message | None) -> None:
        """Write a message, which all can read once the round has ended."""
        if message is not None:
            self.turn.publish(message)

    # What the team does with it ----------------------------------------------------------------------------------

    @property
    def is_at_work(self) -> bool:
        """Whether it is in its turn, or waits for it, in a team that runs."""
        return self._turn is not None

    @property
    def turn(self) -> Turn:
        """Its present turn."""
        if self._turn is None:
            raise SettingsError(f"{self.name} is not at work: hire it into a team, and run that.")
        return self._turn

    @turn.setter
    def turn(self, turn: Turn | None) -> None:
        self._turn = turn

    def start_over(self) -> None:
        """Read the environment from its beginning: what is in its memory already is no news."""
        self._read = 0

    def read(self, published: Sequence[Message]) -> bool:
        """Read what is published and new. Return whether there may be something to act on.

        A class with an `_observe` of its own judges that itself.
        """
        new = [message for message in published[self._read :] if message.is_for(self.addresses)]
        self._read = len(published)
        news = [message for message in self.rc.memory.find_news(new) if self._concerns(message)]
        self.rc.news += news
        for message in new if self.observe_all_msg_from_buffer else news:
            self.rc.memory.read(message)
        return bool(self.rc.news) or (bool(new) and type(self)._observe is not Role._observe)

    def _concerns(self, message: Message) -> bool:
        return message.cause_by in self.rc.watch or self.name in message.send_to

    @property
    def is_idle(self) -> bool:
        """Whether it has no news to act on, and none is published."""
        published = self.rc.env.history.get()[self._read :] if self.rc.env else []
        mine = [message for message in published if message.is_for(self.addresses)]
        if type(self)._observe is Role._observe:
            mine = list(filter(self._concerns, self.rc.memory.find_news(mine)))
        return not (self.rc.news or self.rc.todo or mine)

    # MetaGPT's names ---------------------------------------------------------------------------------------------

    _watch = watch
    _init_actions = set_actions
    _set_react_mode = set_react_mode
    _publish_message = publish_message

    @property
    def _rc(self) -> RoleContext:
        return self.rc

    def _get_prefix(self) -> str:
        return self.prefix

    @property
    def _setting(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return f"{self.name}({self.profile})"
