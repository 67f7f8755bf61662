"""Memories in scripts without spaces, and in languages that make compounds, come back by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autoagent.memory.embedders.builtin import open_builtin
from autoagent.memory.living_memory import LivingMemory
from autoagent.memory.sqlite.store import LocalStore

FACTS = {
    "注文サービスのデータベースはポート5433で待ち受けています。": "注文サービスのデータベースに接続する",
    "週報は社内の共有フォルダに英語で保存すること。": "週報を作成して保存する",
    "订单服务的数据库监听端口5433。": "编写连接订单服务数据库的脚本",
    "会计要求发票总额四舍五入到整分。": "计算发票总额",
}
COMPOUNDS = {
    "Das Passwort der Datenbank liegt im Tresor.": "Finde das Datenbankpasswort",
    "Das Rechnungsdatum steht immer oben rechts.": "Setze in jede Rechnung das Datum",
}
OTHERS = (
    "ファイルを読み込み、結果をまとめました。", "テストが一つ失敗しました。", "会議は火曜日に開かれます。",
    "服务器在五月关闭了。", "测试通过了没有错误。", "会议记录已经发送给所有人。",
    "Der Bericht wurde gestern verschickt.", "Die Tests laufen jede Nacht um drei.", "Das Treffen ist am Dienstag.",
)  # fmt: skip


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[LivingMemory]:
    with LivingMemory(LocalStore(tmp_path, open_builtin())) as memory:
        for text in (*FACTS, *COMPOUNDS, *OTHERS):
            memory.add(text)
        for number in range(150):
            memory.add(f"read_file(filename='{number}.md')\nread_file returned: page {number} of the manual")
        yield memory


@pytest.mark.slow
@pytest.mark.parametrize(("fact", "goal"), [*FACTS.items(), *COMPOUNDS.items()])
def test_a_fact_is_pushed_for_the_goal_that_needs_it(memory: LivingMemory, fact: str, goal: str) -> None:
    assert fact in [found.text for found in memory.recall(goal, 8, pushed=True).memories]


@pytest.mark.slow
@pytest.mark.parametrize("goal", ["天気予報を調べる", "写一首关于春天的诗", "Schreibe ein Gedicht über den Frühling"])
def test_a_goal_that_no_fact_is_about_gets_none(memory: LivingMemory, goal: str) -> None:
    found = memory.recall(goal, 8, pushed=True)
    assert found.memories == (), found.memories
