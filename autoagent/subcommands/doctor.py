"""`autoagent doctor`: whether it can run here, and what to fix. The checks are in `session/diagnosis.py`."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

import click

from autoagent.core.services import Finding
from autoagent.session.diagnosis import examine
from autoagent.terminal.output import echo, echo_json


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="A list of objects: check, status, found, mend.")
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Test key, endpoint, model, embedder, folders and settings, and say how to fix each.

    Exit status: 0 it can run, 2 the settings cannot be used, 3 no model can be used, 1 anything else is broken.
    """
    findings = examine(ctx.obj or {}, os.environ, Path.cwd(), sys.stdout)
    if as_json:
        echo_json([dataclasses.asdict(finding) for finding in findings])
    else:
        width = max(len(finding.check) for finding in findings)
        for finding in findings:
            echo(f"{finding.status:4}  {finding.check:{width}}  {finding.found}")
            if finding.mend:
                echo(f"{'':4}  {'':{width}}  -> {finding.mend}")
    ctx.exit(_exit_code(findings))


def _exit_code(findings: list[Finding]) -> int:
    failed = {finding.check for finding in findings if finding.status == "fail"}
    if "settings" in failed:
        return 2
    if "model" in failed:
        return 3
    return 1 if failed else 0
