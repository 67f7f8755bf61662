"""Edit the lines that a person types at a terminal, with pastes, history, and $EDITOR.

prompt_toolkit does the editing. It is imported once the first question is shown, while the person reads it.
"""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.key_binding.key_processor import KeyPressEvent

POLL_SECONDS = 0.25  # between two calls of `watch`

Watch = Callable[[], BaseException | None]
"""A function to poll. It returns the error that ends the reading, or None."""

MIN_PASTE_CHARACTERS = 500  # arriving at once: more than anybody types
READ_BYTES = 65_536  # read at once
LOAD_DELAY_SECONDS = 0.2  # from showing a question to loading anything else, so that nothing delays the question
PASTE_GAP_SECONDS = 0.03  # faster input belongs to a paste that the terminal does not mark
MIN_HISTORY_CHARACTERS = 4  # of an answer worth keeping in the history, unlike y or y -5
HANG_UP_SECONDS = 0.1  # until the signal of a closed terminal arrives
TYPING_SECONDS = 10.0  # after a key, during which a question does not time out
# These would leave the terminal without echo. While the editor waits, Ctrl-C is a key.
DEFERRED_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def can_edit(stdin: TextIO, screen: TextIO) -> bool:
    """Return whether lines can be edited: input and output are a terminal that can move its cursor."""
    return stdin.isatty() and screen.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


class LineEditor:
    """Read lines from `stdin`, with the prompt on `screen`.

    `history` is the file of lines typed in earlier runs, or None. `mask` removes secrets from it.
    """

    def __init__(self, stdin: TextIO, screen: TextIO, history: Path | None, mask: Callable[[Any], Any]) -> None:
        self._stdin = stdin
        self._screen = screen
        self._history_file = history
        self._mask = mask
        self._session: PromptSession[str] | None = None
        self._words: Sequence[str] = ()

    def read(
        self,
        prompt: str,
        *,
        hidden: bool = False,
        watch: Watch | None = None,
        words: Sequence[str] = (),
        default: str = "",
    ) -> str:
        """Show the prompt, the end of a line, and return the text typed, or edited from `default`.

        `hidden` input appears as stars and stays out of the history. Tab completes `words` after a slash. Typing stops
        the time limit. Raises EOFError for Ctrl-D and for a closed terminal, KeyboardInterrupt for Ctrl-C, the error of
        `watch`, and any error of a signal handler.
        """
        self._words = words
        with ends_with_terminal(), _echo_off(self._stdin):
            self._screen.write(prompt)  # readable while the editor loads, and drawn again by it
            self._screen.flush()
            if "prompt_toolkit" not in sys.modules:
                select.select([self._stdin], [], [], LOAD_DELAY_SECONDS)
            import asyncio

            if hidden:
                session = self._new_session(hidden=True)
            else:
                session = self._session = self._session or self._new_session()
            self._screen.write("\r")
            self._screen.flush()
            end = partial(_end, session.app)

            buffer = session.default_buffer
            last_text = ""
            last_change = -TYPING_SECONDS

            def poll() -> None:
                nonlocal last_text, last_change
                if buffer.text != last_text:
                    last_text, last_change = buffer.text, time.monotonic()
                error = watch() if watch is not None else None
                is_typing = time.monotonic() < last_change + TYPING_SECONDS
                if error is None or (isinstance(error, TimeoutError) and is_typing):
                    asyncio.get_running_loop().call_later(POLL_SECONDS, poll)
                else:
                    end(error)

            with _signals_deferred(end) as received:

                def begin() -> None:
                    if received:
                        end(_Signalled())
                    if watch is not None:
                        poll()

                return session.prompt(prompt, default=default, pre_run=begin)

    def discard_typeahead(self) -> None:
        """Discard input typed before the question."""
        if self._session is not None:
            from prompt_toolkit.input.typeahead import clear_typeahead

            clear_typeahead(self._session.app.input)

    def _new_session(self, *, hidden: bool = False) -> PromptSession[str]:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import InMemoryHistory
        from prompt_toolkit.input.vt100 import Vt100Input
        from prompt_toolkit.key_binding.key_processor import KeyPress
        from prompt_toolkit.keys import Keys
        from prompt_toolkit.output import ColorDepth
        from prompt_toolkit.output.vt100 import Vt100_Output
        from prompt_toolkit.shortcuts import CompleteStyle

        class Input(Vt100Input):
            def read_keys(self) -> list[KeyPress]:
                data = self.stdin_reader.read(READ_BYTES)
                is_paste = len(data) >= MIN_PASTE_CHARACTERS and "\x1b" not in data
                if is_paste and not self.vt100_parser._in_bracketed_paste:
                    while select.select([self.fileno()], [], [], PASTE_GAP_SECONDS)[0]:
                        if not (more := self.stdin_reader.read(READ_BYTES)):
                            break
                        data += more
                    # Key by key, a large paste that the terminal has not marked takes minutes.
                    paste = KeyPress(Keys.BracketedPaste, data.removesuffix("\r"))
                    return [paste, KeyPress(Keys.ControlM, "\r")] if data.endswith("\r") else [paste]
                self.vt100_parser.feed(data)
                keys, self._buffer = self._buffer, []
                poll = select.poll()
                poll.register(self.fileno(), 0)
                if not keys and any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll(0)):
                    time.sleep(HANG_UP_SECONDS)
                    self.stdin_reader.closed = True  # otherwise it would be polled in vain
                return keys

        output = Vt100_Output.from_pty(self._screen, os.environ.get("TERM"), ColorDepth.DEPTH_1_BIT)
        output.enable_cpr = False  # a terminal reports its cursor position as if it had been typed
        return PromptSession(
            multiline=True,
            enable_suspend=True,
            enable_open_in_editor=not hidden,
            is_password=hidden,
            reserve_space_for_menu=0,
            complete_while_typing=False,
            prompt_continuation=lambda width, line, wrapped: "" if wrapped else "| ".rjust(width),
            completer=None if hidden else _completer(lambda: self._words),
            complete_style=CompleteStyle.READLINE_LIKE,
            history=InMemoryHistory() if hidden or self._history_file is None else self._history(self._history_file),
            key_bindings=_keys(),
            input=Input(self._stdin),
            output=output,
        )

    def _history(self, path: Path) -> History:
        from prompt_toolkit.history import FileHistory

        mask = self._mask

        class MaskedHistory(FileHistory):
            def store_string(self, string: str) -> None:
                if len(string.strip()) < MIN_HISTORY_CHARACTERS:
                    return
                try:
                    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    os.close(os.open(path, os.O_CREAT | os.O_APPEND, 0o600))
                    super().store_string(mask(string))
                except OSError:
                    return  # the history is optional

        return MaskedHistory(path)


def _completer(words: Callable[[], Sequence[str]]) -> Completer:
    """Return the completer for Tab: words after a slash, and paths after @, /add or /drop."""
    from prompt_toolkit.completion import Completer, Completion, PathCompleter
    from prompt_toolkit.document import Document

    class WordsAndPaths(Completer):
        paths = PathCompleter(expanduser=True)

        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
            before = document.text_before_cursor
            if match := re.search(r"(?:(?<![^\s(])@|^/(?:add|drop) +)(\S*)$", before):
                yield from self.paths.get_completions(Document(match[1]), complete_event)
            elif before.startswith("/"):
                matches = (word for word in words() if f"/{word}".startswith(before))
                yield from (Completion(f"/{word} ", -len(before)) for word in matches)

    return WordsAndPaths()


def _keys() -> KeyBindings:
    """Return the key bindings that differ from the defaults."""
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()  # a paste arrives as one key

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return keys


@contextmanager
def ends_with_terminal() -> Iterator[None]:
    """Raise EOFError if the terminal is closed within this block, or first what the handler of its SIGHUP raises."""
    try:
        yield
    except TimeoutError:  # an OSError too
        raise
    except (OSError, termios.error) as error:
        time.sleep(HANG_UP_SECONDS)
        raise EOFError from error


@contextmanager
def _echo_off(stdin: TextIO) -> Iterator[None]:
    """Keep typed input without echoing it, as the editor will show it."""
    modes = termios.tcgetattr(stdin)
    silent_modes = [*modes[:3], modes[3] & ~(termios.ECHO | termios.ICANON), *modes[4:]]
    termios.tcsetattr(stdin, termios.TCSANOW, silent_modes)
    try:
        yield
    finally:
        with suppress(termios.error):  # closed meanwhile
            termios.tcsetattr(stdin, termios.TCSANOW, modes)


def _end(app: Any, error: BaseException) -> None:
    """End the question with this error, if it is still waiting."""

    def leave() -> None:
        if app.is_running and not app.future.done():
            app.exit(exception=error)

    if app.loop is not None:
        app.loop.call_soon_threadsafe(leave)


class _Signalled(BaseException):
    """Report that a signal ended the question."""


@contextmanager
def _signals_deferred(end: Callable[[BaseException], None]) -> Iterator[list[int]]:
    """Let signals end the question first, so that their own handlers find a restored terminal.

    Yields the signals received, as nothing can end a question before the editor has started.
    """
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)
        end(_Signalled())

    numbers = [number for number in DEFERRED_SIGNALS if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    handlers = {int(number): signal.signal(number, note) for number in numbers}
    wakeup = signal.set_wakeup_fd(-1)  # the editor installs its own
    try:
        yield received
    except _Signalled:
        pass
    finally:
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in received:
            signal.raise_signal(number)
    if received:
        raise EOFError  # the handlers did not raise, but there is no answer


def edit_in_editor(text: str, suffix: str) -> str | None:
    """Return the text as edited in $VISUAL or $EDITOR, or None if neither is set or the editor fails."""
    import shlex
    import subprocess
    import tempfile

    try:
        command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "")
    except ValueError:  # unbalanced quotes
        return None
    if not command:
        return None
    with tempfile.TemporaryDirectory(prefix="autoagent-") as folder:
        path = Path(folder) / f"text{suffix}"
        path.write_text(text, "utf-8", newline="")
        try:  # not click.edit: it leaves the editor running when a signal ends this program
            process = subprocess.run([*command, str(path)], stderr=sys.stderr)  # noqa: S603 - the user's own editor
            return path.read_bytes().decode("utf-8") if process.returncode == 0 else None
        except (OSError, UnicodeDecodeError):
            return None


@contextmanager
def watched(watch: Watch | None) -> Iterator[None]:
    """Raise the error of `watch` in this block, even if it is blocked in a read. Only the main thread watches."""
    if watch is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    errors: list[BaseException] = []
    done = threading.Event()

    def poll() -> None:
        while not done.wait(POLL_SECONDS):
            if not errors and (error := watch()):
                errors.append(error)
            if errors:  # repeatedly: a signal just before a system call does not interrupt it
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)

    def interrupt(*_: object) -> None:
        if errors and not done.is_set():
            done.set()
            raise errors[0]

    handler = signal.signal(signal.SIGALRM, interrupt)
    thread = threading.Thread(target=poll, name="watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        signal.signal(signal.SIGALRM, handler)
