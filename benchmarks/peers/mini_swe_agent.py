"""mini-swe-agent with the settings it ships, in this folder; its agent without a screen."""

import yaml
from minisweagent.agents.default import DefaultAgent
from minisweagent.config import builtin_config_dir
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel

shipped = yaml.safe_load((builtin_config_dir / "mini.yaml").read_text())
settings = {name: shipped["agent"][name] for name in ("system_template", "instance_template")}
model = LitellmModel(model_name="openai/gpt-4o-mini", **shipped["model"])
agent = DefaultAgent(model, LocalEnvironment(**shipped["environment"]), cost_limit=0.0, **settings)
agent.run("Read the notes")
