"""The manual pages, and what a shell completes: both from what the program says of itself."""

from __future__ import annotations

import pytest
from driver import Home


def test_each_subcommand_has_a_manual_page_made_from_its_help(home: Home) -> None:
    page = home.run("man", "show").out
    assert page.startswith('.TH AUTOAGENT-SHOW 1 "" "autoagent ')
    assert (
        "\n.B autoagent show\n[OPTIONS] [RUN]\n" in page and "\n.TP\n.B \\-\\-export FILE\nWrite it to FILE.md" in page
    )
    assert "\n.B add [OPTIONS] [TEXT]\nRemember TEXT" in home.run("man", "memory").out
    assert "Did you mean 'show'?" in home.run("man", "shwo").err
    done = home.run("man", "install")
    assert done.code == 0 and f"Written to {home.folder / '.local/share/man/man1'}" in done.err
    written = {path.name for path in (home.folder / ".local/share/man/man1").iterdir()}
    assert {"autoagent.1", "autoagent-show.1", "autoagent-new-plugin.1"} < written
    assert "\n.TP\n.B new\\-plugin\n" in home.read(".local/share/man/man1/autoagent.1")


RUN = "20260101-120000-abcd"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("autoagent --model lo", "local"),
        ("autoagent --model gpt-6.1", "gpt-6.1-sol"),
        ("autoagent --commands write_to", "write_to_file"),
        ("autoagent rules add browse_w", "browse_website"),
        ("autoagent sh", "show"),
        ("autoagent show 2026", RUN),
        ("autoagent show ", RUN),
    ],
)
def test_a_shell_completes_subcommands_models_commands_and_what_can_be_a_run(
    home: Home, words: str, found: str
) -> None:
    for name in (RUN, "\x1b]0;pwned\x07", "a b"):
        (home.state / "runs" / name).mkdir(parents=True)
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_AUTOAGENT_COMPLETE": "bash_complete"}
    assert home.run(env=asked).out == f"plain,{found}\n"


def test_completion_is_printed_or_installed_for_a_shell(home: Home) -> None:
    home.succeed("completion", "install", env={"SHELL": "/usr/bin/fish"})
    assert "_AUTOAGENT_COMPLETE" in home.read(".config/fish/completions/autoagent.fish")
    assert "_AUTOAGENT_COMPLETE" in home.run("completion", "bash").out
    assert home.run("completion", "install", env={"SHELL": "/bin/dash"}).code == 2
