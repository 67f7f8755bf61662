"""Define `autoagent view`: the runs as a live page in the browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

from autoagent.log.reader import find_run
from autoagent.session.build import questions_path
from autoagent.session.session import Session
from autoagent.subcommands.flags import run_ids_here
from autoagent.terminal.output import echo
from autoagent.text.text_file import read_text

_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("view")
@click.argument("run", required=False, shell_complete=run_ids_here)
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="PORT", help="Default: any free one.")
@click.option("--open", "opens", is_flag=True, help="Open the page in your browser.")
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="If not loopback, give the next three options.")
@click.option("--certificate", type=_file, metavar="FILE", help="Serve over TLS.")
@click.option("--key", type=_file, metavar="FILE", help="The private key of the certificate.")
@click.option("--token-file", type=_file, metavar="FILE", help="Read the token from FILE instead of making a new one.")
@click.pass_context
def view(
    ctx: click.Context,
    run: str | None,
    port: int,
    opens: bool,
    host: str,
    certificate: Path | None,
    key: Path | None,
    token_file: Path | None,
) -> None:
    """Show the runs of this state folder live in the browser, and answer the questions of all your runs there.

    Prints a link that works only on this machine, and serves until Ctrl-C. RUN is any unique prefix of an id.
    """
    from autoagent.web.actions import Actions
    from autoagent.web.serve import ServerAddress, serve

    session = Session.read(ctx.obj)
    state_dir = session.settings.state_dir
    path = f"/runs/{find_run(state_dir, run)}" if run else "/"
    token = read_text(token_file).strip() if token_file else ""

    def show_link(link: str) -> None:
        echo(link)
        if opens:
            webbrowser.open(link)

    actions = Actions(state_dir, questions_path(), session.check_made_here)
    serve(ServerAddress(host, port, token, certificate, key), actions, state_dir, path, show_link)
