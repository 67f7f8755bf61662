"""The loop of AutoGPT 0.2, written anew: five thoughts and a command in JSON, asked for in words alone.

Its way, not its code: the constraints, commands and response format in one system prompt, the whole history behind it,
"Determine which next command to use", and a reply that is no JSON is answered by an error.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from openai import OpenAI

COMMANDS = {
    "read_file": ("filename",),
    "write_to_file": ("filename", "text"),
    "append_to_file": ("filename", "text"),
    "delete_file": ("filename",),
    "list_files": ("directory",),
    "execute_python_file": ("filename",),
    "execute_shell": ("command_line",),
    "task_complete": ("reason",),
}
FORM = {
    "thoughts": {
        "text": "thought",
        "reasoning": "reasoning",
        "plan": "- short bulleted\n- list that conveys\n- long-term plan",
        "criticism": "constructive self-criticism",
        "speak": "thoughts summary to say to user",
    },
    "command": {"name": "command name", "args": {"arg name": "value"}},
}


def printed(*argv: str) -> str:
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    return (ran.stdout + ran.stderr)[-2000:] or "It printed nothing."


def execute(name: str, args: dict[str, str]) -> str:
    if name not in COMMANDS:
        return f"Unknown command {name}."
    first, *more = (str(args[argument]) for argument in COMMANDS[name])
    path = Path(first)
    if name == "read_file":
        return path.read_text()
    if name in ("write_to_file", "append_to_file"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w" if name == "write_to_file" else "a") as file:
            file.write(more[0])
        return "File written."
    if name == "delete_file":
        path.unlink()
        return "File deleted."
    if name == "list_files":
        return ", ".join(sorted(entry.name for entry in path.iterdir()))
    if name == "execute_python_file":
        return printed(sys.executable, first)
    return printed("/bin/sh", "-c", first)


def system() -> str:
    listed = (
        f'{number}. "{name}", args: ' + ", ".join(f'"{argument}": "<{argument}>"' for argument in arguments)
        for number, (name, arguments) in enumerate(COMMANDS.items(), 1)
    )
    goals = "\n".join(f"{number}. {goal}" for number, goal in enumerate(os.environ["TASK"].splitlines(), 1))
    return (
        "You are Helper, an AI that works on files\nYour decisions must always be made independently.\n\n"
        f"GOALS:\n\n{goals}\n\nConstraints:\n1. No user assistance\n2. Exclusively use the commands listed below\n\n"
        "Commands:\n" + "\n".join(listed) + "\n\nPerformance Evaluation:\n1. Every command has a cost, so be smart and "
        "efficient. Aim to complete tasks in the least number of steps.\n\nYou should only respond in JSON format as "
        f"described below\nResponse Format:\n{json.dumps(FORM, indent=4)}\nEnsure the response can be parsed by Python "
        "json.loads"
    )


def main() -> None:
    client, unparseable, done = OpenAI(max_retries=0), 0, False
    history = [{"role": "system", "content": system()}]
    trigger = {"role": "user", "content": "Determine which next command to use, and respond using the format above:"}
    for _ in range(int(os.environ["STEPS"])):
        answer = client.chat.completions.create(
            model=os.environ["MODEL"], messages=[*history, trigger], temperature=0, max_tokens=1000
        )
        reply = answer.choices[0].message.content or ""
        history += [trigger, {"role": "assistant", "content": reply}]
        try:
            found = re.search(r"\{.*\}", reply, re.DOTALL)
            command = json.loads(found[0] if found else reply)["command"]
            name, args = command["name"], command["args"]
        except (ValueError, KeyError, TypeError):
            unparseable += 1
            history.append({"role": "system", "content": "Error: the reply is not in the response format."})
            continue
        if done := name == "task_complete":
            break
        try:
            result = execute(name, args)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, subprocess.SubprocessError) as error:
            result = f"Error: {error!r}"
        history.append({"role": "system", "content": f"Command {name} returned: {result}"})
    print(f"unparseable {unparseable}")
    sys.exit(0 if done else 4)


if __name__ == "__main__":
    main()
