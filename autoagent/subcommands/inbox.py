"""Define `autoagent inbox` and `autoagent answer`: the open questions of all the user's runs, and an answer to one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from autoagent.safety.open_questions import OpenQuestion, OpenQuestions, pick
from autoagent.session.build import questions_path
from autoagent.terminal.output import echo, echo_list
from autoagent.text.figures import duration
from autoagent.text.sanitize import shorten

_MAX_SUBJECT_CHARACTERS = 2000


@click.command("inbox")
@click.argument("words", nargs=-1, metavar="[[RUN] TEXT]")
@click.option("--json", "as_json", is_flag=True, help="A list of objects with all details of the questions.")
@click.pass_context
def inbox(ctx: click.Context, words: tuple[str, ...], as_json: bool) -> None:
    """List the open questions of all your runs, wherever you started them. With TEXT, answer one (see `answer`)."""
    if words:
        ctx.invoke(answer, words=words)
        return
    questions = OpenQuestions(questions_path()).all()
    echo_list(questions, as_json, _fields, lambda question: "\n".join(_lines(question)), "No question is open.")


@click.command("answer")
@click.argument("words", nargs=-1, required=True, metavar="[RUN] TEXT")
def answer(words: tuple[str, ...]) -> None:
    """Answer an open question with TEXT, as at its own terminal: y, "y -3", n, or feedback.

    RUN is the id of a run or of a question, or any unique prefix; it may be left out if only one question is open.
    """
    if len(words) > 2:
        raise click.UsageError('TEXT is one argument: put it in quotes, as in autoagent answer "y -3".')
    questions = OpenQuestions(questions_path())
    run, text = words if len(words) == 2 else ("", words[0])
    question = pick(questions.all(), run)
    questions.answer(question, text)
    echo(f"Answered {question.id}: {_subject(question)}")


def _fields(question: OpenQuestion) -> dict[str, Any]:
    values = {name: value for name, value in asdict(question).items() if name not in ("yes", "no")}
    return {**values, "waits": question.waits}


def _lines(question: OpenQuestion) -> Iterator[str]:
    now, command = time.time(), question.command
    age = f"for {duration(now - question.asked)}"
    if question.until is not None:
        left = question.until - now
        age += f", {duration(left)} left" if left > 0 else ", the run has continued"
    agent = f"  ({question.agent})" if question.agent else ""
    yield f"{question.id}  {age}  {' '.join(question.workspace.splitlines())}{agent}"
    if command:
        yield f"  {_subject(question)}"
    for text in (command.get("warning", ""), command.get("preview", ""), question.text, question.question):
        yield from (f"  {line}" for line in shorten(text, _MAX_SUBJECT_CHARACTERS).splitlines())
    yield f"  autoagent inbox {question.id} TEXT"


def _subject(question: OpenQuestion) -> str:
    """Return the command to decide on, on one line, or the words of the question."""
    if not question.command:
        return shorten(question.question.replace("\n", " "), _MAX_SUBJECT_CHARACTERS)
    args = json.dumps(question.command["arguments"], ensure_ascii=False)
    return f"{question.command['name']} ({question.command['risk']}) {shorten(args, _MAX_SUBJECT_CHARACTERS)}"
