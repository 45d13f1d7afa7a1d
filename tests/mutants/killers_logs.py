"""The rules that logs rest on, one small test each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from outlive.app.app import App
from outlive.errors import LeaseLost, StoreFailed
from outlive.ports import Ports
from outlive.stores.memory import MemoryStore
from outlive.stores.types import Entry
from outlive.testing.suite.entries import HandClock


class _Failing(MemoryStore):
    """A disk that takes nothing."""

    async def commit(self, batch: Sequence[Entry], *, wait: bool = True) -> Any:
        raise StoreFailed("the disk is full")


def nobody_is_told_before_the_batch(folder: Path) -> None:
    """A batch that fails is an error for all of it."""

    async def main() -> list[Any]:
        async with App(_Failing(), drive=False) as app:
            log = app.log("l")
            appends = [log.append(f"k{n % 2}", lambda view: [len(view)]) for n in range(4)]
            return await asyncio.gather(*appends, return_exceptions=True)

    answers = asyncio.run(main())
    assert [StoreFailed] * 4 == list(map(type, answers))


def refusals_rest_on_what_is_durable(folder: Path) -> None:
    """Nobody hears of a token that was taken by an entry that was never stored."""

    def take(view: Any) -> list[str]:
        if len(view):
            raise LookupError("taken")
        return ["mine"]

    async def main() -> list[Any]:
        async with App(_Failing(), drive=False) as app:
            log = app.log("l")
            appends = [log.append("token", take) for _ in range(2)]
            return await asyncio.gather(*appends, return_exceptions=True)

    assert [StoreFailed] * 2 == list(map(type, asyncio.run(main())))


def journals_stand_and_fall_together(folder: Path) -> None:
    """While another process appends to one of two keys, no half of a pair is ever stored."""

    async def main() -> tuple[int, int]:
        store = MemoryStore()
        async with App(store, drive=False) as app, App(store, drive=False) as other:
            log, rival = app.log("l"), other.log("l")
            for key in ("a", "b"):
                await log.append(key, lambda view: [0])
            await rival.append("b", lambda view: ["rival"])
            seen: list[int] = []

            def pair(views: Any) -> Any:
                seen.append(len(views["b"]))
                return {"a": ["pair"], "b": ["pair"]}

            await log.append_all(["a", "b"], pair)
            pairs = {key: await rival.read(key) for key in ("a", "b")}
            here, there = (sum(entry.value == "pair" for entry in x) for x in pairs.values())
            return here, there

    assert (1, 1) == asyncio.run(main())


def refusals_know_everything(folder: Path) -> None:
    """Who is out of date reads on before it says no."""

    async def main() -> Any:
        store = MemoryStore()
        async with App(store, drive=False) as app, App(store, drive=False) as other:
            log, rival = app.log("l"), other.log("l")

            def take(view: Any) -> list[str]:
                if view.last is not None and view.last.value == "taken":
                    raise LeaseLost("lock")
                return ["taken"]

            await log.append("lock", take)
            await rival.append("lock", lambda view: ["free"])
            return await log.append("lock", take)

    assert 1 == len(asyncio.run(main()))


def windows_end(folder: Path) -> None:
    """A token counts for its window, and no longer."""
    clock = HandClock()

    async def main() -> list[int]:
        found = []
        async with App(MemoryStore(), ports=Ports(clock=clock), drive=False) as app:
            log = app.log("tokens", keep="1h")
            for hours in (0.0, 0.9, 3.0):
                clock.advance(3600 * hours)
                found.append(len(await log.append("t", lambda v: None if len(v) else ["first"])))
        return found

    assert [1, 0, 1] == asyncio.run(main())


KILLERS: dict[str, Callable[[Path], None]] = {
    "group commit acknowledges early": nobody_is_told_before_the_batch,
    "refused by what is not durable": refusals_rest_on_what_is_durable,
    "journals committed apart": journals_stand_and_fall_together,
    "stale view decides": refusals_know_everything,
    "window ignored": windows_end,
}
