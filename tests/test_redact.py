"""Masking: secrets go, everything else stays byte for byte."""

from __future__ import annotations

import dataclasses
import json
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoagent.settings import all_settings, secrets_of
from autoagent.text.redaction import MASK, Redactor, is_placeholder

PEM = (
    "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n"
    + "MIIEpAIBAAKCAQEA7bq1yK2v\n" * 3
    + "c2hvcnQ=\n-----END RSA PRIVATE KEY-----"
)


@pytest.mark.parametrize(
    "secret",
    [
        "sk-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKL", "sk-proj-Ab1_cdefghijklmnopqr-stuvwxyz",
        "sk-ant-api03-abcdefghij0123456789", "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "github_pat_11ABCDEFG0abcdefghijkl_mnopqrst", "AKIAIOSFODNN7EXAMPLE", "xoxb-123456789012-abcdefGHIJKL",
        "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH", "AIzaSyA1234567890abcdefghijklmnopqrstuv", PEM,
        PEM.replace("\n", "\\n"), PEM.replace("RSA ", "").replace("Proc-Type: 4,ENCRYPTED\n\n", ""), PEM[:90],
    ],
    ids=lambda secret: secret[:14],
)  # fmt: skip
def test_a_secret_is_known_by_its_shape(secret: str) -> None:
    assert Redactor().mask(f'before "{secret}" after') == f'before "{MASK}" after'


def test_what_stands_around_a_secret_is_kept() -> None:
    mask = Redactor().mask
    assert mask("Authorization: Bearer abcdefghij.0123456789-xyz\nAccept") == f"Authorization: Bearer {MASK}\nAccept"
    assert mask("git clone https://me:s3cret@host.example/r.git") == f"git clone https://{MASK}@host.example/r.git"
    assert mask("REDIS_URL=redis://:passw0rd123@host:6379/0") == f"REDIS_URL=redis://{MASK}@host:6379/0"
    assert mask("get http://h/v1?v=1&api_key=s3cret-Pa55&b=2") == f"get http://h/v1?v=1&{MASK}&b=2"
    assert mask("GET /v1/x?API_KEY=s3cret-Pa55 HTTP/1.1") == f"GET /v1/x?{MASK} HTTP/1.1"
    assert mask("KEY=sk-abcdefghijklmnopqrst0123;NEXT=1") == f"KEY={MASK};NEXT=1"


@pytest.mark.parametrize("prefix", ["-", "+", " ", "> ", "> -"])
def test_a_private_key_is_masked_in_a_diff_and_in_a_quotation(prefix: str) -> None:
    lines = ["before", *PEM.split("\n"), "after"]
    masked = Redactor().mask("".join(f"{prefix}{line}\n" for line in lines))
    assert masked == f"{prefix}before\n{prefix}{MASK}\n{prefix}after\n"


def test_known_values_are_masked_whole_also_in_addresses_and_in_json_that_was_not_parsed() -> None:
    mask = Redactor(["pass word/1", "longer-pass-word-2"]).mask
    assert mask("x pass word/1 y pass%20word%2F1 z") == f"x {MASK} y {MASK} z"
    assert mask("longer-pass-word-2") == MASK
    assert Redactor(["12345678", "12345678-long"]).mask("12345678-long 12345678") == f"{MASK} {MASK}"
    reply = json.dumps({"args": {"text": 'pass"word\\1'}})
    assert Redactor(['pass"word\\1']).mask_json({"text": reply}) == {"text": f'{{"args": {{"text": "{MASK}"}}}}'}


def test_a_short_known_value_does_not_eat_words() -> None:
    assert Redactor(["", "key", "1234567"]).mask("the key is 1234567") == "the key is 1234567"


@pytest.mark.parametrize(
    "text",
    [
        "risk-management-framework-for-2024-documents",
        "sk-learn is scikit-learn; <div class='sk-toggleable__label-arrow'>",
        "task-1234567890123456789012345",
        "The bearer of this letter, and Bearer tokens-are-used-for-authentication",
        "https://host.example:8080/path@2x.png, http://host:80/@me, redis://:6379/0 and mailto:me@host.example",
        "-----BEGIN PRIVATE KEY----- is how such a file begins.",
        "-----BEGIN CERTIFICATE-----\nMIIEpAIBAAKCAQEA7bq1yK2v\n-----END CERTIFICATE-----",
        "sha256 cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        "AKIA is a prefix; hf_model_name; ghp_short; xoxo-hugs-and-kisses",
        "http://host.example/v1?api_key=YOUR_API_KEY&api-version=2024-02-01",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert Redactor(["known-secret-1"]).mask(text) == text


@given(st.text())
def test_text_without_a_known_value_stays(text: str) -> None:
    assert Redactor(["\x00known\x00value\x00"]).mask(text) in (text, MASK) or MASK not in text


@pytest.mark.parametrize(
    "value",
    [
        *("none", "dummy", "EMPTY", "ollama", "lm-studio", "sk-no-key-required", "your-openai-api-key"),
        *("YOUR_API_KEY_HERE", "<your api key>", "llama-cpp", "xxxxxxxxxxxxxxxx", "sk-xxxxxxxxxxxxxxxxxxxx"),
        *("********", "postgres", "changeme", "${OPENAI_API_KEY}", "Not-Needed", "short-1"),
    ],
)
def test_a_placeholder_is_no_secret(value: str) -> None:
    assert is_placeholder(value)
    assert Redactor([value]).mask(f"a {value} b") == f"a {value} b"
    assert secrets_of(all_settings()(openai_api_key=value, memory_url=f"postgresql://me:{value}@db/x")) == []


@pytest.mark.parametrize(
    "value",
    [
        *("hunter2-hunter2", "correct-horse-battery-staple", "qWeRtYuIoPaSd", "abcdefghijklmnopqrstuvwxyz", "12345678"),
        *("my-key-0123456789", "sk-proj-AbCdEfGhIjKlMnOp"),
    ],
)
def test_a_secret_is_no_placeholder(value: str) -> None:
    assert not is_placeholder(value)
    assert Redactor([value]).mask(f"a {value} b") == f"a {MASK} b"


@pytest.mark.parametrize(
    "password",
    [
        *("postgres", "password", "my-secret", "$PASSWORD", "${DB_PASSWORD}", "<password>", "***", "xxxx"),
        *("{{ db.password }}".replace(" ", ""), "%(password)s", "{password}"),
    ],
)
def test_an_address_with_a_placeholder_for_a_password_stays(password: str) -> None:
    text = f"DATABASE_URL=postgres://postgres:{password}@db:5432/app"
    assert Redactor().mask(text) == text


@pytest.mark.parametrize(
    "password",
    [
        *("secret-word", "root", "hunter", "Sommer", "correct-horse", "%68unter"),
        *("$tr0ng-pass", "$ecretP4ss", "<3-kittens", "{Ab3!x%", "%24tr0ng", "!#&*", "4-7-1-1"),
    ],
)
def test_a_password_of_plain_words_in_an_address_is_masked(password: str) -> None:
    assert Redactor().mask(f"http://postgres:{password}@db/app") == f"http://{MASK}@db/app"


def test_names_of_changed_files_are_never_masked() -> None:
    names = ["hunter2-hunter2.txt"]
    masked = Redactor(["hunter2-hunter2"]).mask_json({"data": {"changed": names}, "text": names[0]})
    assert masked == {"data": {"changed": names}, "text": f"{MASK}.txt"}


def test_json_is_masked_at_every_depth_and_keeps_its_shape() -> None:
    masked = Redactor(["known-secret-1"]).mask_json(
        {"a": ["known-secret-1", 1, None, True], "known-secret-1": {"b": ("x known-secret-1",)}, "c": 1.5}
    )
    assert masked == {"a": [MASK, 1, None, True], MASK: {"b": [f"x {MASK}"]}, "c": 1.5}


@pytest.mark.parametrize(
    "piece", ["sk-", "xoxb-", "-----BEGIN PRIVATE KEY-----", "://a:", "bearer ", "A", "\\n", "\n-"]
)
def test_no_text_makes_it_slow(piece: str) -> None:
    text = "-----BEGIN PRIVATE KEY-----" + piece * (200_000 // len(piece))
    start = time.process_time()
    Redactor(["known-secret-1"]).mask(text)
    assert time.process_time() - start < 5  # 0.3 s on an idle machine; a quadratic pattern takes minutes


def test_every_secret_of_the_settings_is_known_and_the_password_in_it() -> None:
    settings = all_settings()(
        openai_api_key="plain-looking-key-1",
        memory_url="postgresql://me:pass%2Fword-1@db.example/x",
        sd_webui_auth="user:web-password-1",
        google_engine="no-secret-at-all",
    )
    mask = Redactor(secrets_of(settings)).mask
    for secret in ("plain-looking-key-1", "pass%2Fword-1", "pass/word-1", "web-password-1"):
        assert mask(f"x {secret} y") == f"x {MASK} y"
    assert mask("no-secret-at-all") == "no-secret-at-all"
    assert secrets_of(all_settings()()) == []
    assert secrets_of(all_settings()(memory_url="redis://localhost:6379/0")) == [], "an address without a password"


def test_no_setting_that_is_a_secret_is_left_out() -> None:
    names = {f.name for f in dataclasses.fields(all_settings()) if re.search("key|token|secret|password|auth", f.name)}
    names -= {"authorise_command_key", "exit_key", "max_tokens", "reply_tokens"}
    settings = all_settings()(**{name: f"value-1-of-{name}" for name in names})
    assert {f"value-1-of-{name}" for name in names} <= set(secrets_of(settings))
