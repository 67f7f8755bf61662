"""smolagents' agent that writes code, in this folder: all imports, and files, are open to it; no screen."""

import os
import sys

from smolagents import CodeAgent, LogLevel, OpenAIServerModel
from smolagents.utils import AgentParsingError

model = OpenAIServerModel(os.environ["MODEL"], os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])
agent = CodeAgent(
    [],
    model,
    max_steps=int(os.environ["STEPS"]),
    additional_authorized_imports=["*"],
    executor_kwargs={"additional_functions": {"open": open}},
    verbosity_level=LogLevel.OFF,
)
done = False
try:
    done = agent.run(os.environ["TASK"], return_full_result=True).state == "success"
finally:
    failed = (getattr(step, "error", None) for step in agent.memory.steps)
    print(f"unparseable {sum(isinstance(error, AgentParsingError) for error in failed)}")
sys.exit(0 if done else 4)
