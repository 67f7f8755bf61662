"""smolagents' agent that calls tools natively, with a tool that reads a file; its screen is switched off."""

import os
from pathlib import Path

from smolagents import LogLevel, OpenAIServerModel, ToolCallingAgent, tool


@tool
def read_file(filename: str) -> str:
    """Read a file.

    Args:
        filename: its path
    """
    return Path(filename).read_text()


model = OpenAIServerModel("gpt-4o-mini", api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])
agent = ToolCallingAgent([read_file], model, max_steps=1_000_000, verbosity_level=LogLevel.OFF)
agent.run("Read the notes")
