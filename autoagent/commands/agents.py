"""Start sub-agents, which work in the background, and hand work to the next level of a hierarchical run.

A sub-agent's messages carry the labels of its sources: they are as untrusted and as private as these. The calls of a
level are authorized one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

from autoagent.commands.context import Context
from autoagent.commands.registry import CommandOutput, command
from autoagent.core.commands import Effects, ResultMeta
from autoagent.core.protocols import SubAgent
from autoagent.settings import Settings
from autoagent.text.figures import counted

Key = Annotated[str, "as start_agent gave it", "text"]


def _off_reason(settings: Settings) -> str:
    if not settings.agents_at_once:
        return "sub-agents are switched off (AUTOAGENT_AGENTS=0)"
    if not settings.agents_depth:
        return "sub-agents are switched off (AUTOAGENT_AGENTS_DEPTH=0)"
    return settings.model_choice.provider.one_agent


_agent_command = partial(command, rare=True, available=_off_reason, autogpt=("autogpt.app",))


@_agent_command(
    "start_agent",
    "Start a sub-agent that works in the background",
    risk="write",
    effects=Effects(tells_agents=True),
    levels=(),
)
def start_agent(
    context: Context,
    name: Annotated[str, "a short name", "text"],
    task: Annotated[str, "what it is for, in a few words"],
    prompt: Annotated[str, "what it is to do, with all that it must know for it"],
    commands: Annotated[list[str] | None, "the only commands it may use"] = None,
) -> CommandOutput:
    names = [str(command) for command in commands or ()]
    agent = context.agents.start(name, task, prompt, commands=names, origin=context.origin())
    text = (
        f"{agent.name} has the key {agent.key} and works in the background. Go on with something else, or wait for it "
        "with list_agents; you are told when it ends."
    )
    return CommandOutput(text, ResultMeta(details={"agent": agent.key}))


@_agent_command(
    "message_agent",
    "Tell a sub-agent something",
    risk="write",
    repeatable=True,
    effects=Effects(tells_agents=True),
    levels=(),
)
def message_agent(
    context: Context, key: Key, message: Annotated[str, "it reads this before its next step"]
) -> CommandOutput:
    agent = context.agents.message(key, message, origin=context.origin())
    return CommandOutput(f"It was told. {_status_line(agent)}", _meta([agent]))


@_agent_command(
    "list_agents", "List your sub-agents, or wait for one", risk="read", repeatable=True, effects=Effects(), levels=()
)
def list_agents(
    context: Context, wait: Annotated[float | None, "seconds to wait until one ends"] = None
) -> CommandOutput:
    agents = context.agents.listed(wait or 0.0)
    waits = any(agent.status in ("running", "asking") for agent in agents)
    text = "\n".join(map(_status_line, agents)) or "You have started no agent."
    return CommandOutput(text, replace(_meta(agents), waits=waits))


@_agent_command("delete_agent", "End a sub-agent", risk="write", levels=(), effects=Effects())
def delete_agent(context: Context, key: Key) -> CommandOutput:
    agent = context.agents.end(key)
    return CommandOutput(_status_line(agent), _meta([agent]))


def _status_line(agent: SubAgent) -> str:
    steps = counted(agent.steps, "step")
    if agent.status == "running":
        status = f"running for {agent.seconds:.0f} s, {steps}."
    elif agent.status == "asking":
        status = f"waits for the user's answer to a question, {steps}."
    else:
        status = f"ended ({agent.status}) after {steps}: {agent.reason}"
    last_message = f" It said last: {' '.join(agent.said.split())}" if agent.said and agent.said != agent.reason else ""
    return f"{agent.key}. {agent.name}: {status}{last_message}"


def _meta(agents: Sequence[SubAgent]) -> ResultMeta:
    labels = [agent.origin.labels for agent in agents]
    sources = dict.fromkeys(meta.untrusted for meta in labels if meta.untrusted)
    return ResultMeta(untrusted=", ".join(sources), private=any(meta.private for meta in labels))


# Levels ------------------------------------------------------------------------------------------------------------


def levels_off_reason(settings: Settings) -> str:
    """Explain why commands of levels cannot be used, or return ''."""
    return "" if settings.hierarchical else "the run has no levels (--hierarchical)"


_delegating_command = partial(
    command,
    risk="read",
    available=levels_off_reason,
    repeatable=True,
    category="levels",
    effects=Effects(tells_agents=True),
    always_offered=True,
)


@_delegating_command("execute_task", "Have the executor do a task, and wait for its result", levels=("planner",))
def execute_task(
    here: Context,
    task: Annotated[str, "what is to be done", "text"],
    context: Annotated[str, "all that must be known for it", "text"] = "",
) -> CommandOutput:
    return _delegate(here, task, context)


@_delegating_command("think", "Have a question thought through step by step, and wait for the result")
def think(
    here: Context,
    question: Annotated[str, "what is to be thought through", "text"],
    context: Annotated[str, "all that must be known for it", "text"] = "",
) -> CommandOutput:
    return _delegate(here, question, context)


def _delegate(here: Context, task: str, context: str) -> CommandOutput:
    result, meta = here.agents.delegate(task, context, call=here.call, origin=here.origin())
    files = f"\nFiles changed: {', '.join(meta.changed)}." if meta.changed else ""
    return CommandOutput(f"{result}{files}", meta)


COMMANDS = (start_agent, message_agent, list_agents, delete_agent, execute_task, think)
