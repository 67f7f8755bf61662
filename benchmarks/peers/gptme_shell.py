"""gptme as its user runs it without questions, with native tool calls and its shell."""

from gptme.cli.main import main

main(["--non-interactive", "--model", "local/gpt-4o-mini", "--tool-format", "tool", "--tools", "shell", "Read the notes"])
