"""Call the hooks of a run's enabled plug-ins, each at its place, and survive their failures.

One that raises, hangs or ends is named, once for each way, and the run goes on as if it had said nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from autoagent.core.command_schema import TEXT_FORM
from autoagent.core.commands import Call, CommandSpec, Proposal, Result, Verdict
from autoagent.core.errors import StopRun
from autoagent.core.events import Ended, Event, Returned, SystemNotice, Thought
from autoagent.core.model import Completion, Message
from autoagent.core.protocols import Embedder, Model
from autoagent.core.task import Outcome, Status
from autoagent.extension import PromptParts, RunPart, Setting, written
from autoagent.text.sanitize import escape, shorten
from autoagent_autogpt_plugins.plugin_commands import plugin_commands
from autoagent_autogpt_plugins.process import PluginError, PluginProcess, Served

MAX_SAID_CHARACTERS = 4_000  # from a plug-in before a step
_MESSAGE_OF = ("prompt", "message")  # the argument with the words for another agent


_YES = frozenset({"y", "yes", "yeah", "yep", "ok", "okay", "sure", "alright", "approve", "authorise", "authorize"})
_NO = frozenset({"n", "no", "nope", "stop", "exit", "quit"})


class PluginHooks(RunPart):
    """Make the enabled plug-ins a part of a run. `warn` receives a line for each problem, once.

    With `chats` (CHAT_MESSAGES_ENABLED) they answer for the user and hear what is shown. `specs` are all commands.
    """

    def __init__(
        self,
        processes: Sequence[PluginProcess],
        warn: Callable[[str], None],
        setting: Setting,
        specs: Sequence[CommandSpec],
        served: Served,
    ) -> None:
        self._warn = warn
        self._setting = setting
        self._chats: bool = setting("chat_messages")
        self._specs = specs
        self._served = served
        self._warned: set[tuple[str, str, str]] = set()
        self._tells = frozenset(spec.name for spec in specs if spec.effects and spec.effects.tells_agents)
        self._said: dict[str, str] = {}
        self.loaded: dict[str, list[dict[str, Any]]] = {}
        self._processes = [process for process in processes if self._load(process)]

    def _load(self, process: PluginProcess) -> bool:
        found = self._asked(process, "load", partial(process.ask, "about"))
        self._note(process, found)
        if not self.loaded[process.name]:
            process.close()
            return False
        return True

    def _note(self, process: PluginProcess, about: Any) -> None:
        """Store a plug-in's description of itself, which may change when it sees the prompt."""
        self.loaded[process.name] = [one for one in about or () if isinstance(one, dict) and "hooks" in one]

    def hooks(self, process: PluginProcess) -> set[str]:
        """Return the hooks that a plug-in can handle."""
        return {hook for one in self.loaded[process.name] for hook in one["hooks"]}

    def handles(self, hook: str) -> bool:
        """Return whether any can handle a hook."""
        return any(True for _ in self._with(hook))

    def close(self) -> None:
        """End their processes."""
        for process in self._processes:
            process.close()

    # The prompt and the commands ---------------------------------------------------------------------------------

    def shape(self, prompt: PromptParts) -> tuple[PromptParts, list[Any]]:
        """Return the prompt as they change it, and the commands that they add."""
        commands: list[Any] = []
        names = {name for spec in self._specs for name in (spec.name, *spec.aliases)}
        for process in self._processes:
            if self.hooks(process).isdisjoint(("post_prompt", "on_planning", "chat_completion")):  # these see it
                continue
            state = {
                "name": prompt.name, "role": prompt.role, "goals": prompt.goals, "constraints": prompt.constraints,
                "resources": prompt.resources, "performance_evaluation": prompt.best_practices,
                "response_format": TEXT_FORM,
            }  # fmt: skip
            found = self._asked(process, "post_prompt", partial(process.ask, "prompt", again=True, state=state))
            if not isinstance(found, dict):
                continue
            prompt = _changed(prompt, found)
            self._note(process, found.get("about"))
            added = plugin_commands(process, found.get("commands") or [], names, self._warn)
            commands += added
            if found.get("failed"):
                self._failed(process, "post_prompt", str(found["failed"]))
            elif not added and process.unset and "post_prompt" in self.hooks(process):
                self._warn(f"The plug-in {process.name} adds no command.{_unset(process)}")
        return prompt, commands

    def begin(self, complete: Callable[[str], str], run: Callable[[str, Mapping[str, Any]], str]) -> None:
        """Use these to answer the plug-ins' requests to the program."""
        self._served.complete, self._served.run = complete, run

    # A step ------------------------------------------------------------------------------------------------------

    def planning(self, messages: Sequence[Message]) -> Sequence[tuple[str, str]]:
        """Return what each says before the model is asked, unless it says the same as last time."""
        given = [{"role": message.role, "content": message.content} for message in messages]
        said = []
        for process in self._with("on_planning"):
            text = self._hook(process, "on_planning", messages=given)
            if isinstance(text, str) and text.strip() and text != self._said.get(process.name):
                self._said[process.name] = text
                said.append((_source(process), shorten(text, MAX_SAID_CHARACTERS)))
        return said

    def reply(self, completion: Completion) -> Completion:
        """Return the reply after on_response and post_planning."""
        text = before = written(completion)
        for hook in ("on_response", "post_planning"):
            for process in self._with(hook):
                text = _text(self._hook(process, hook, response=text)) or text
        if text == before:
            return completion
        return replace(completion, text=text, calls=())

    def call(self, call: Call) -> Call:
        """Return the call after pre_command, its words for another agent after pre_instruction."""
        for process in self._with("pre_command"):
            changed = self._hook(process, "pre_command", command_name=call.name, arguments=dict(call.args))
            match changed:
                case [str(name), dict(args)]:
                    call = Call(call.id, name, args)
        return self._instructed(call) if call.name in self._tells else call

    def result(self, call: Call, result: Result) -> Result:
        """Return the result after post_command, and what agents say after the instruction hooks."""
        for process in self._with("post_command"):
            result = self._told(
                process, result, self._hook(process, "post_command", command_name=call.name, response=result.text)
            )
        if call.name in self._tells:
            for process in self._with("on_instruction"):
                messages = [*_instruction(call), {"role": "assistant", "content": result.text}]
                said = _text(self._hook(process, "on_instruction", messages=messages))
                result = self._told(process, result, f"{result.text}\n{said}" if said else None)
            for process in self._with("post_instruction"):
                result = self._told(process, result, self._hook(process, "post_instruction", response=result.text))
        return result

    def hear(self, event: Event) -> None:
        """Report what a chat would show: the agent's words, the results of its commands, and the end."""
        line = _line_of(event) if self._chats else ""
        for process in self._with("report") if line else ():
            self._hook(process, "report", message=line)

    # In the place of the program ---------------------------------------------------------------------------------

    @property
    def replaces_model(self) -> bool:
        """Return whether one of them answers in place of the model."""
        return self.handles("chat_completion")

    def model(self, opened: Callable[[], Model]) -> Model:
        """Return a model that has the plug-ins answer first."""
        from autoagent_autogpt_plugins.plugin_model import PluginModel

        return PluginModel(self, self._setting, opened)

    def embedder(self) -> Embedder | None:
        """Return the plug-in that embeds, or None if none does."""
        from autoagent_autogpt_plugins.plugin_model import PluginEmbedder

        return PluginEmbedder(self) if self.handles("text_embedding") else None

    def completed(self, messages: Sequence[Message], model: str, temperature: float, max_tokens: int) -> str | None:
        """Return the reply of the plug-in that answers as the model, or None if none does."""
        given = [{"role": message.role, "content": message.content} for message in messages]
        for process in self._with("chat_completion"):
            text = self._hook(
                process, "chat_completion", messages=given, model=model, temperature=temperature, max_tokens=max_tokens
            )
            if isinstance(text, str) and text.strip():
                return text
        return None

    @property
    def embedder_name(self) -> str:
        """Return the name of the plug-in that embeds, or ''."""
        return next((process.name for process in self._with("text_embedding")), "")

    def embedded(self, text: str) -> list[float] | None:
        """Return the vector of the plug-in that embeds, or None if none does."""
        for process in self._with("text_embedding"):
            vector = self._hook(process, "text_embedding", text=text)
            if isinstance(vector, list) and vector and all(isinstance(one, int | float) for one in vector):
                with suppress(OverflowError):  # a whole number of hundreds of digits
                    return [float(one) for one in vector]
        return None

    def decide(self, proposal: Proposal) -> Verdict | None:
        """Let a plug-in answer for the user, for example from a chat, if a call needs only a yes."""
        if proposal.warning or self._setting("continuous"):
            return None
        text, who = self._answered(f"NEXT ACTION: {proposal.call}\nRun it? y, n, or feedback")
        if not text:
            return None
        if text.lower() in _YES:
            return Verdict(True, "", f"{who} says: {text}")
        if text.lower() in _NO:
            raise StopRun(Outcome(Status.STOPPED, f"Stopped by {who}."))
        return Verdict(False, "", f"{who} says: {text}")  # not the user's word, which would reset the standstill count

    def answer(self, question: str) -> str:
        """Return a plug-in's answer for the user, or '' if there is none."""
        return self._answered(question)[0]

    def _answered(self, question: str) -> tuple[str, str]:
        """Return a plug-in's answer and its name, or two empty texts if none answers."""
        for process in self._with("user_input") if self._chats else ():
            text = _text(self._hook(process, "user_input", user_input=question))
            if text and text.strip():
                return text.strip(), _source(process)
        return "", ""

    # How they are asked ------------------------------------------------------------------------------------------

    def _with(self, hook: str) -> Iterable[PluginProcess]:
        return (process for process in self._processes if hook in self.hooks(process))

    def _hook(self, process: PluginProcess, hook: str, **given: Any) -> Any:
        return self._asked(process, hook, partial(process.ask, "hook", hook=hook, given=given))

    def _asked(self, process: PluginProcess, what: str, ask: Callable[[], Any]) -> Any:
        """Return its answer. Warn and return None if it fails."""
        try:
            return ask()
        except PluginError as error:
            self._failed(process, what, str(error))
            return None

    def _failed(self, process: PluginProcess, what: str, why: str) -> None:
        """Warn once about each problem."""
        told = (process.name, what, why)
        if told not in self._warned:
            self._warned.add(told)
            where = "cannot be loaded" if what == "load" else f"failed in {what}"
            hint = _unset(process) if what in ("load", "post_prompt") else ""
            self._warn(f"The plug-in {process.name} {where}: {escape(why)}. The run goes on without that.{hint}")

    def _instructed(self, call: Call) -> Call:
        """Return the call with the messages that pre_instruction adds to its words, or has in their place."""
        before = _instruction(call)
        key = next((name for name in _MESSAGE_OF if isinstance(call.args.get(name), str)), "")
        for process in self._with("pre_instruction") if key else ():
            found = self._hook(process, "pre_instruction", messages=before)
            new = [one for one in found if one not in before] if isinstance(found, list) else []
            added = [str(one.get("content", "") if isinstance(one, dict) else one) for one in new]
            words = "\n\n".join([call.args[key], *filter(None, added)])
            call = replace(call, args={**call.args, key: words})
        return call

    def _told(self, process: PluginProcess, result: Result, text: Any) -> Result:
        """Return the result with a plug-in's text, which may come from anywhere."""
        changed = _text(text)
        if not changed or changed == result.text:
            return result
        meta = replace(result.meta, untrusted=result.meta.untrusted or _source(process))
        return replace(result, text=changed, meta=meta)


def _unset(process: PluginProcess) -> str:
    """Return which variables a plug-in may lack."""
    if not process.unset:
        return ""
    names = ", ".join(process.unset)
    return f" It reads {names}: name what it needs of these under `env:` of its entry in plugins_config.yaml."


def _source(process: PluginProcess) -> str:
    return f"the plug-in {process.name}"


def _text(value: Any) -> str | None:
    """Return what a hook says as text, or None for nothing."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _instruction(call: Call) -> list[dict[str, str]]:
    words = next((call.args[name] for name in _MESSAGE_OF if isinstance(call.args.get(name), str)), "")
    return [{"role": "user", "content": words}]


def _changed(parts: PromptParts, found: Mapping[str, Any]) -> PromptParts:
    """Return the parts as a plug-in leaves them: in lines that hide nothing. What must not be empty is kept."""

    def lines(key: str, limit: int = 800) -> tuple[str, ...]:
        given = found.get(key) or ()
        texts = [given] if isinstance(given, str) else [str(one) for one in given]
        return tuple(shorten(" ".join(escape(text).split()), limit) for text in texts if text.strip())

    return PromptParts(
        name=" ".join(lines("name")) or parts.name,
        role=" ".join(lines("role", 10_000)) or parts.role,
        goals=lines("goals", 10_000) or parts.goals,
        constraints=lines("constraints"),
        resources=lines("resources"),
        best_practices=lines("performance_evaluation"),
    )


def _line_of(event: Event) -> str:
    match event:
        case Thought():
            said = event.thoughts.speak or event.thoughts.text
            return f"THOUGHTS: {said}\nNEXT ACTION: {event.call}" if said else f"NEXT ACTION: {event.call}"
        case Returned():
            return f"SYSTEM: {event.text}"
        case SystemNotice():
            return f"SYSTEM: {event.text}"
        case Ended():
            return f"ENDED: {event.reason}"
    return ""
