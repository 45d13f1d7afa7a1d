"""What commands print steers no terminal, in any format."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

import outlive
from outlive.app.open import open_app
from outlive.cli.entry import main
from outlive.cli.output import log_to_stderr, print_json, print_table, safe_json

EVIL = "a\x1b[2J\x07\x7f\x9b31m\u202ereversed\u2066\u200f\U000e0041b"


@outlive.step
async def say(text: str) -> str:
    return text


@outlive.flow
async def saying(text: str) -> str:
    return await say(text)


def is_clean(text: str) -> bool:
    return all(c.isprintable() or c == "\n" for c in text)


def test_json_says_the_same() -> None:
    raw = json.dumps({EVIL: [EVIL, "ä 漢 😀"]}, ensure_ascii=False).encode()

    assert is_clean(safe_json(raw))
    assert {EVIL: [EVIL, "ä 漢 😀"]} == json.loads(safe_json(raw))
    assert "ä 漢 😀" in safe_json(raw)


def test_tables_logs_and_errors_are_clean(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    print_table([EVIL, "B"], [[EVIL, EVIL]])
    print_json({EVIL: EVIL})
    with pytest.raises(SystemExit):
        main([EVIL])
    monkeypatch.setattr(logging.getLogger("outlive"), "handlers", [])
    monkeypatch.setattr(logging.getLogger("outlive"), "propagate", False)
    log_to_stderr()
    logging.getLogger("outlive").error("run %s", EVIL)

    said = capsys.readouterr()
    assert is_clean(said.out)
    assert is_clean(said.err)
    assert "\\x1b[2J" in said.err


async def test_every_command_is_clean(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    """Ids are checked when a run starts; texts are the user's."""
    url = f"sqlite:///{tmp_path}/o.db"
    async with open_app(url) as app:
        for run_id in ("one", "two"):
            handle = await app.start(saying, f"{EVIL}{run_id}", id=run_id)
            await handle.outcome()

    for command in (["show", "one"], ["runs"], ["diff", "one", "two"], ["show", EVIL], ["verify"]):
        for form in ([], ["--json"]):
            await asyncio.to_thread(main, [*command, *form, "--store", url])
            said = capsys.readouterr()
            assert is_clean(said.out), (command, form)
            assert is_clean(said.err), (command, form)
