"""10,000 random variants of paths, addresses and command lines, none of which has an effect outside.

In this process, on the gate, the network guard and the sandbox themselves, as 10,000 processes would take hours. The
random numbers start from a fixed seed: a failure comes again.
"""

from __future__ import annotations

import contextlib
import ipaddress
import random
import shutil

import pytest

from autoagent.core.errors import CommandError
from autoagent.network.addresses import NetworkGuard, parse
from autoagent.sandbox.process import ProcessLimits
from autoagent.sandbox.programs import open_sandbox
from autoagent.workspace.gate import Workspace

from .driver import room

pytestmark = pytest.mark.slow

SEED = 64
PATHS, URLS, LINES = 6_000, 3_700, 300

PARTS = (
    *("..", ".", "", "a", "way-out", "secret.txt", "~", "~root", "etc", "passwd", "outside", "home", ".ssh", "x"),
    *("...", "..\u2215x", "%2e%2e", "a b", "-rf", "*", "$(x)", "\u202e", "\0", "\n", "C:", "\\..\\..", "file:"),
)
HOSTS = (
    *("127.0.0.1", "127.1", "0", "0x7f.1", "2130706433", "017700000001", "localhost", "[::1]", "[::ffff:7f00:1]"),
    *("10.1.2.3", "172.16.0.1", "192.168.0.1", "169.254.169.254", "[fd00::1]", "[fe80::1%25lo]", "[64:ff9b::a00:1]"),
)
FRAMES = ("{}", " {} ", "{}.", "user@{}", "user:pass@{}", "example.org@{}", "{}#@example.org", "{}\\@example.org")
SCHEMES = (
    "http://", "https://", "HTTP://", "http:", "http:///", "//", "ftp://", "file://", "", "http:/\\", "\thttp://",
)  # fmt: skip
TARGETS = ("../../outside/secret.txt", "/var/tmp/{}", "{}/home/.bashrc", "/etc/{}", "way-out/new", "$HOME/../{}", "~/x")
ACTS = (
    "echo x >{0}", "rm -rf {0}", "cp a {0}", "ln -f a {0}", "mv a {0}", "truncate -s 0 {0}", "chmod 777 {0}",
    "tee {0} <a",
)  # fmt: skip


def test_no_path_leads_out() -> None:
    pick = random.Random(SEED)
    with room() as made:
        (made.workspace / "way-out").symlink_to(made.outside)
        workspace, before = Workspace(made.workspace, [made.state]), made.picture()
        for _ in range(PATHS):
            path = pick.choice(("", "", "/", "//", str(made.outside), f"{made.workspace}/")) + "/".join(
                pick.choices(PARTS, k=pick.randint(1, 6))
            )
            act = pick.choice((workspace.write, workspace.append, workspace.delete, workspace.find, workspace.rename))
            with contextlib.suppress(CommandError):
                if act in (workspace.write, workspace.append):
                    act(path, b"hostile")  # type: ignore[operator]
                elif act == workspace.rename:
                    workspace.rename("a", path)
                else:
                    act(path)  # type: ignore[operator]
        assert made.picture() == before


def test_no_address_leads_inward() -> None:
    """Numbers that stand for addresses are resolved as the system does; a name that is let through must be public."""
    pick = random.Random(SEED)
    guard = NetworkGuard()
    for _ in range(URLS):
        host = pick.choice(FRAMES).format(pick.choice(HOSTS))
        url = (
            pick.choice(SCHEMES)
            + host
            + pick.choice(("", ":80", ":0", ":99999", ":8080"))
            + pick.choice(("", "/x", "?y"))
        )
        try:
            address = parse(url)
            reached = guard.approved_addresses(address.host, address.port)
        except CommandError:
            continue
        assert all(ipaddress.ip_address(ip).is_global for ip in reached), url


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_no_command_line_changes_what_is_outside() -> None:
    pick = random.Random(SEED)
    with room() as made:
        (made.workspace / "way-out").symlink_to(made.outside)
        (made.workspace / "a").write_text("a")
        before = made.picture()
        sandbox = open_sandbox(Workspace(made.workspace), ProcessLimits(seconds=10, processes=30), kind="bubblewrap")
        try:
            for number in range(LINES):
                target = pick.choice(TARGETS).format(pick.choice((f"pwned-{number}", made.folder.parent.name)))
                sandbox.run(["/bin/sh", "-c", pick.choice(ACTS).format(target)])
        finally:
            sandbox.close()
        assert made.picture() == before
