"""With a key, nothing of what users gave is anywhere in what a store leaves on disk."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import outlive
from outlive.app.open import open_app
from outlive.errors import RunFailed
from tests.conftest import Figure

#: Twenty secrets, each in a place of its own.
SECRETS = [f"planted-{number:02}-{'xyzzy' * 3}" for number in range(20)]
(
    FLOW_ARG, STEP_ARG, STEP_OUT, EFFECT_ARG, EFFECT_OUT, KEY, TAG, TAG_TWO, SIGNAL, ANSWER,
    QUESTION, ERROR, STEP_ERROR, CHILD_ARG, CHILD_OUT, CARRIED, LARGE, REQUEST, REPLY, OUTCOME,
) = SECRETS  # fmt: skip


@outlive.step
async def think(question: str) -> str:
    return STEP_OUT


@outlive.step(retry=outlive.Retry(attempts=1), raises=(ValueError,))
async def stumble() -> None:
    raise ValueError(STEP_ERROR)


@outlive.effect(key="pay:{who}")
async def pay(who: str, note: str) -> str:
    return EFFECT_OUT


@outlive.flow
async def child(word: str) -> str:
    return CHILD_OUT


@outlive.step
async def swallow(data: bytes) -> int:
    return len(data)


@outlive.flow
async def busy(word: str, chapter: int = 0) -> str:
    if chapter == 0:
        await think(STEP_ARG)
        await pay(KEY, EFFECT_ARG)
        # What can't be compressed is kept as it is, for the control to find.
        await swallow(random.Random(1).randbytes(400_000) + LARGE.encode())
        try:
            await stumble()
        except ValueError:
            await outlive.call(child, CHILD_ARG)
        await outlive.wait_signal("word", type=str)
        await outlive.ask(QUESTION, type=str)
        async for request in outlive.requests("message", type=str):
            await request.reply(REPLY)
            break
        await outlive.carry(CARRIED, 1)
    return OUTCOME


@outlive.flow
async def failing() -> None:
    raise RuntimeError(ERROR)


async def live_it(url: str, key: str | None, look: Callable[[], object] = lambda: None) -> None:
    """Runs that take every secret in and end; then a look, before the store is closed."""
    async with open_app(url, key=key or "") as app:
        asked = busy.options(id="b", tags={"team": TAG, "who": TAG_TWO})
        handle = await app.start(asked, FLOW_ARG)
        await handle.signal("word", SIGNAL)
        while not await handle.questions():
            await asyncio.sleep(0.01)
        await handle.answer(ANSWER)
        assert REPLY == await handle.request("message", REQUEST)
        assert OUTCOME == await handle.outcome()
        with pytest.raises(RunFailed):
            await (await app.start(failing, id="f")).outcome()
        look()


def found_in(folder: Path) -> set[str]:
    """The secrets that can be read in any file there."""
    data = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    return {secret for secret in SECRETS if any(secret.encode() in each for each in data)}


@pytest.fixture
def logs(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG):
        yield caplog


async def test_no_secret_is_in_the_files(
    tmp_path: Path, key: str, logs: pytest.LogCaptureFixture, figure: Figure
) -> None:
    """Neither in the file nor in its log, its free pages or what is printed meanwhile."""
    seen: set[str] = set()
    for name, with_key in (("sealed", key), ("plain", None)):
        (tmp_path / name).mkdir()
        url = f"sqlite:///{tmp_path / name / 'o.db'}"
        if with_key is None:
            assert not [secret for secret in SECRETS if secret in logs.text]
        await live_it(url, with_key, lambda: seen.update(found_in(tmp_path / "sealed")))

    assert set() == seen | found_in(tmp_path / "sealed")
    plain = found_in(tmp_path / "plain")
    figure("sealed: secrets readable in the files", f"0 of 20, without a key {len(plain)} of 20")
    assert set(SECRETS) == plain


async def test_without_the_key_only_the_outline_shows(
    tmp_path: Path,
    key: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """``runs --json`` lists ids, flows and statuses; tag values and reasons are not there."""
    from outlive.cli import main

    url = f"sqlite:///{tmp_path / 'o.db'}"
    await live_it(url, key)
    monkeypatch.delenv("OUTLIVE_KEY", raising=False)

    assert 0 == await asyncio.to_thread(main, ["runs", "--json", "--store", url])
    printed = capsys.readouterr().out
    assert 3 == await asyncio.to_thread(main, ["show", "b", "--json", "--store", url])
    refused = capsys.readouterr()

    rows = {row["id"]: row for row in json.loads(printed)}
    assert {"team": "(sealed)", "who": "(sealed)"} == rows["b"]["tags"]
    assert "(sealed)" == rows["f"]["reason"]
    assert "is sealed with key" in refused.err
    assert not [secret for secret in SECRETS if secret in printed + refused.out + refused.err]


async def test_with_the_key_everything_is_as_it_was(tmp_path: Path, key: str) -> None:
    """Another process with the key reads, finds by tag and goes on."""
    url = f"sqlite:///{tmp_path / 'o.db'}"
    await live_it(url, key)

    async with open_app(url, key=key) as app:
        page = await app.find(tag=("team", TAG))
        assert [("b", {"team": TAG, "who": TAG_TWO})] == [
            (each.head.run_id, dict(each.header.tags)) for each in page.items
        ]
        assert OUTCOME == await (await app.get("b", busy)).outcome()
        failed = (await app.find(status="failed")).items[0]
        assert failed.header.reason == f"RuntimeError: {ERROR}"
