"""The run that docs/reading.md follows, with every function of ours that it calls noted.

``python -m tests.docs.followed_run URL FOLDER`` starts it and dies by SIGKILL right after the bank
has paid; ``go_on`` ends it in another process. Both leave what they called in the folder.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

import outlive
from outlive.cli import main as command_line

SOURCE = Path(outlive.__file__).parent
FOLDER = Path(sys.argv[2] if __name__ == "__main__" else ".")
CALLED: set[tuple[str, str]] = set()
DYING = __name__ == "__main__"
PREFIX = f"{SOURCE}{os.sep}"


def note(frame: FrameType, event: str, _: object) -> None:
    """What a profiler is told."""
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(PREFIX):
        CALLED.add((code.co_filename.removeprefix(PREFIX), code.co_qualname))


def watch() -> None:
    """Note calls in this thread and in those that are started from now on."""
    threading.setprofile(note)
    sys.setprofile(note)


def unwatch() -> None:
    threading.setprofile(None)
    sys.setprofile(None)


@outlive.step(retry=outlive.Retry(attempts=2, delay="10ms"))
async def look_up(order: str) -> int:
    if outlive.attempt() == 1:
        raise ConnectionError("busy")
    return 1999


async def find_refund(key: str) -> object:
    return 1999


@outlive.effect(key="refund:{order}", check=find_refund, settle_after="100ms")
async def refund(order: str, cents: int) -> int:
    if DYING:
        (FOLDER / "before.json").write_text(json.dumps(sorted(CALLED)))
        os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("the bank was asked to pay twice")


@outlive.flow
async def support(order: str) -> int:
    cents = await look_up(order)
    approval = await outlive.approve(refund, order, cents)
    return await refund(order, cents) if approval.granted else 0


async def _until_it_asks(url: str) -> None:
    async with outlive.open(url, drive=False) as app:
        while not (await app.find(status="waiting")).items:
            await asyncio.sleep(0.02)


def _answer(url: str) -> None:
    asyncio.run(_until_it_asks(url))
    command_line(["answer", "t-1", "yes", "--store", url])


def begin(url: str) -> None:
    """Start the run, answer its question, die in its effect."""
    os.environ["OUTLIVE_STORE"], os.environ["OUTLIVE_IDLE_SECONDS"] = url, "0"
    watch()
    threading.Thread(target=_answer, args=(url,), daemon=True).start()
    outlive.run(support, "7", id="t-1")


async def go_on(url: str) -> int:
    """End the run as another process."""
    async with outlive.open(url) as app, app.worker([support]):
        outcome: int = await (await app.get("t-1", support)).outcome("30s")
    return outcome


if __name__ == "__main__":
    begin(sys.argv[1])
