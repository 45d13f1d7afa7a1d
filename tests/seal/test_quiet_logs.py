"""With a key no text of a user's error is logged: it may hold what was sealed."""

from __future__ import annotations

import asyncio
import logging

import pytest

import outlive
from outlive.app.open import open_app

SECRET = "patient-4711-has-gout"


def check(note: str) -> object:
    raise ValueError(f"no such {SECRET}")


@outlive.effect(check=check, timeout="1s", settle_after="10ms")
async def doubted(note: str) -> None:
    raise ConnectionResetError(SECRET)


@outlive.step
async def failing() -> None:
    raise ValueError(SECRET)


@outlive.flow
async def careless() -> str:
    """Lets a task fail that nobody awaits, a callback, and its own end."""
    task = asyncio.ensure_future(failing())
    await outlive.sleep("50ms")
    del task
    asyncio.get_running_loop().call_exception_handler(
        {"message": f"callback({SECRET})", "exception": ValueError(SECRET)}
    )
    return "done"


@outlive.flow
async def clinging() -> None:
    """Fails in its finally when it is put to sleep."""
    try:
        await outlive.wait_signal("never")
    finally:
        raise ValueError(SECRET)


@outlive.flow
async def doubting() -> None:
    await doubted("x")


@pytest.mark.parametrize("is_sealed", [True, False])
async def test_errors_of_users_are_logged_without_their_texts(
    is_sealed: bool, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a key they are logged with all that they say."""
    with caplog.at_level(logging.DEBUG):
        async with open_app("memory://", key=key if is_sealed else "") as app:
            assert "done" == await (await app.start(careless, id="a")).outcome()
            await app.start(clinging, id="b")
            await app.start(doubting, id="c")
            while not [each for each in caplog.records if "check of" in each.getMessage()]:
                await asyncio.sleep(0.01)
    said = [logging.Formatter().format(record) for record in caplog.records]

    for words in ("in flow code", "finally raised", "the check of effect"):
        (line, *_) = [text for text in said if words in text]
        assert is_sealed == (SECRET not in line)
    assert is_sealed == (SECRET not in "\n".join(said))
