"""What the commands do, by the libraries and the folders that AutoGPT's own process had."""

import json
import os
from pathlib import Path

import almanac_data
import requests


class Almanac:
    def __init__(self, key):
        self.key = key

    def look_up(self, query: str) -> str:
        answer = requests.get(os.environ["ALMANAC_URL"], params={"q": query, "key": self.key}, timeout=10)
        return json.dumps({"status": answer.status_code, "text": answer.text, "data": almanac_data.WORD})

    def add_task(self, task_id=None):
        Path(os.getcwd(), "auto_gpt_workspace", "tasks.json").write_text(json.dumps({str(task_id): False}))  # noqa: PTH109
        return {"added": task_id}

    def improve_plan(self):
        import openai

        messages = [{"role": "user", "content": "Improve the plan."}]
        response = openai.ChatCompletion.create(model="gpt-3.5-turbo", messages=messages, max_tokens=100, n=1)
        return response.choices[0].message.content + response["choices"][0]["message"]["role"]
