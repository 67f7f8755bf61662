"""A process that holds a sandbox, as an agent does: started by a test as one user or another, told what to run.

It reads one JSON object a line, {"run": argv, ...options} or {"start": argv, "output": path}, and answers with one.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import autoagent
from autoagent.core.errors import ForUser
from autoagent.core.services import ProcessExit
from autoagent.sandbox.process import ProcessLimits
from autoagent.sandbox.programs import open_sandbox
from autoagent.workspace.gate import Workspace

WORKER = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
NOBODY = 65534 - int(WORKER)  # one for each test process: the kernel counts processes by user
SOURCE = Path(autoagent.__file__).parent.parent
KEY = "sk-secret-of-the-agent"


@functools.cache
def python_for(user: int | None) -> str:
    """An interpreter that the user can run and that knows enough for the sandbox, which needs no packages; or ''."""
    as_user = {} if user is None else {"user": user}
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            program = f"import sys; sys.path.append({str(SOURCE)!r}); import autoagent.sandbox.programs"
            if subprocess.run([python, "-c", program], stderr=subprocess.DEVNULL, **as_user).returncode == 0:
                return python
        except OSError:
            pass
    return ""


class Agent:
    """The test's side of it; `name` and `gaps` are those of the sandbox. Ended by `close`."""

    def __init__(
        self,
        kind: str,
        root: Path,
        *,
        user: int | None = None,
        protected: Iterable[Path] = (),
        env: dict[str, str] | None = None,
        **limits: Any,
    ) -> None:
        told = {"kind": kind, "root": str(root), "protected": [str(path) for path in protected], "limits": limits}
        as_user = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        self.process = subprocess.Popen(
            [python_for(user), __file__, json.dumps(told)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(SOURCE), "OPENAI_API_KEY": KEY, **(env or {})},
            **as_user,
        )
        answer = self._answer()
        self.problem = str(answer.get("problem", ""))
        self.name, self.gaps = str(answer.get("name", "")), "\n".join(answer.get("gaps", ()))

    def run(self, *argv: str, **options: Any) -> ProcessExit:
        answer = self._ask({"run": argv, **options})
        return ProcessExit(**{**answer, "output": base64.b64decode(answer["output"])})

    def start(self, *argv: str, output: str) -> int:
        return int(self._ask({"start": argv, "output": output})["pid"])

    def begin(self, question: dict[str, Any]) -> None:
        """Have it do something; nobody waits for what becomes of it."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()

    def close(self) -> None:
        """As an agent ends: orderly."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        self.begin(question)
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer = json.loads(self.process.stdout.readline())
        assert isinstance(answer, dict)
        return answer


Hold = Callable[..., Agent]  # makes one: see the fixture `hold`


def main() -> None:
    told = json.loads(sys.argv[1])
    workspace = Workspace(Path(told["root"]), [Path(path) for path in told["protected"]])
    try:
        sandbox = open_sandbox(workspace, ProcessLimits(**told["limits"]), kind=told["kind"])
    except ForUser as error:
        print(json.dumps({"problem": str(error)}), flush=True)
        return
    print(json.dumps({"name": sandbox.name, "gaps": sandbox.gaps}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if argv := asked.pop("run", None):
            done = dataclasses.asdict(sandbox.run(argv, **asked))
            print(json.dumps({**done, "output": base64.b64encode(done["output"]).decode()}), flush=True)
        else:
            print(json.dumps({"pid": sandbox.start(asked["start"], output=asked["output"]).pid}), flush=True)
    sandbox.close()


if __name__ == "__main__":
    main()
