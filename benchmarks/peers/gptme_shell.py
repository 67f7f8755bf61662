"""gptme as its user runs it without questions, with native tool calls and its shell."""

from gptme.cli.main import main

ALONE = ["--non-interactive", "--tool-format", "tool", "--tools", "shell"]

main([*ALONE, "--model", "local/gpt-4o-mini", "Read the notes"])
