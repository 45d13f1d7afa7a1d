"""Known-bad variants of places, anonymous steps and cleanups."""

from __future__ import annotations

from typing import Any

import pytest

import outlive
from outlive.engine import loop
from outlive.engine.anonymous import CallShape
from outlive.engine.calls import Calls
from outlive.engine.place import Branch, PlaceBranch


def place_follows_the_task(patch: pytest.MonkeyPatch) -> None:
    """A task made in a place is a branch of it, with a number of its own."""
    patch.setattr(loop, "_branch_of_new_task", lambda here, coro: Branch.child(here))


def calls_not_told_apart(patch: pytest.MonkeyPatch) -> None:
    """Of two calls of one name the one that comes first is the first."""
    patch.setattr(PlaceBranch, "next_id", Branch.next_id)


def do_runs_again_on_replay(patch: pytest.MonkeyPatch) -> None:
    """An anonymous step is done again where its outcome is in the journal."""
    real: Any = outlive.do

    async def do(name: str, fn: Any, /, *args: Any, **options: Any) -> Any:
        is_again = outlive.replaying()
        value = await real(name, fn, *args, **options)
        if is_again:
            await fn(*args)
        return value

    patch.setattr(outlive, "do", do)


def shape_of_another(patch: pytest.MonkeyPatch) -> None:
    """Functions of one code are taken for one function, whatever their types."""
    patch.setattr(CallShape, "fits", lambda self, fn: True)


def cleanup_on_replay(patch: pytest.MonkeyPatch) -> None:
    """What closes a session is called again for one that this process never had."""
    real = Calls.on_host

    async def on_host(self: Calls, fn: Any, args: tuple[Any, ...]) -> None:
        was, self._context.is_replaying = self._context.is_replaying, False
        try:
            await real(self, fn, args)
        finally:
            self._context.is_replaying = was

    patch.setattr(Calls, "on_host", on_host)
