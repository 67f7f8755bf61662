"""mini-swe-agent in this folder, with the settings it ships for models without native tool calls."""

import os
import sys

import yaml
from minisweagent.agents.default import DefaultAgent
from minisweagent.config import builtin_config_dir
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_textbased_model import LitellmTextbasedModel

shipped = yaml.safe_load((builtin_config_dir / "mini_textbased.yaml").read_text())
settings = {name: shipped["agent"][name] for name in ("system_template", "instance_template")}
model = LitellmTextbasedModel(model_name=f"openai/{os.environ['MODEL']}", **shipped["model"])
steps = int(os.environ["STEPS"])
agent = DefaultAgent(model, LocalEnvironment(**shipped["environment"]), cost_limit=0.0, step_limit=steps, **settings)
ended = {}
try:
    ended = agent.run(os.environ["TASK"])
finally:
    calls = sum(message["role"] == "assistant" for message in agent.messages)
    print(f"unparseable {agent.n_calls - calls}")
sys.exit(0 if ended.get("exit_status") == "Submitted" else 4)
