"""The scenarios of async flows once more as plain code: the same runs, nothing awaited.

The world's steps and effects are ``async def``; plain ones beside them show that it does not
matter how a step was written.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

from outlive import sync as outlive
from outlive.errors import RunFailed, TimedOut
from tests.engine import scenarios as awaited
from tests.engine.scenarios import Scenario, check_item, leaf, waiting_leaf
from tests.harness.world import world

# What a type checker sees of an async step is what it returns when it is called; in plain code
# that is awaited for the caller.
note: Any = awaited.note
pay: Any = awaited.pay


@outlive.step
def plain_note(text: str) -> str:
    """A plain step, which runs in a thread."""
    world.ran.append(text)
    return text.upper()


@outlive.flow
def signalled() -> list[str]:
    def one(name: str) -> str:
        return f"{name}={outlive.wait_signal('s', str, within='1h')}"

    got = list(outlive.gather(partial(one, "a"), partial(one, "b")))
    got.append(note("between"))
    got.append(str(outlive.wait_signal("t", str)))
    outlive.sleep(0.3)
    got.append(str(outlive.wait_signal("s", str)))
    return got


@outlive.flow
def questioned() -> list[str]:
    number: int = outlive.ask("How many?", type=int, within="1d")
    seen = [str(number)]
    for name in ("rent", "fine"):
        approval = outlive.approve(pay, name)
        seen.append(f"{name} {approval.granted} {approval.by}")
        if approval.granted:
            pay(name)
    try:
        outlive.ask("Anybody?", within=0.4)
    except TimedOut:
        seen.append("nobody")
    return seen


@outlive.flow
def desk() -> int:
    served = 0
    for request in outlive.requests("message", type=str, idle="10s"):
        served += 1
        receipt = pay(request.value)
        request.reply(f"{served} {receipt}")
        if request.value == "last":
            break
    return served


@outlive.flow
def limited() -> list[str]:
    seen = []
    try:
        with outlive.timeout(20):
            try:
                with outlive.timeout(0.3):
                    outlive.wait_signal("never")
            except TimedOut:
                seen.append(note("inner"))
            outlive.sleep(100)
    except TimedOut:
        seen.append(note("outer"))
    with outlive.timeout(5):
        outlive.sleep(0.2)
    return seen


@outlive.flow
def swallowed() -> list[str]:
    seen = []
    for _ in range(2):
        try:
            outlive.wait_signal("s", str)
        except asyncio.CancelledError:
            seen.append(pay("after a cancel"))
    return [*seen, str(outlive.wait_signal("s", str))]


@outlive.flow
def cancelled() -> None:
    pay("a")
    try:
        outlive.gather(partial(pay, "b"), partial(outlive.ask, "Well?"))
    finally:
        note("cleaning up")


@outlive.flow(deadline=1.0)
def overdue() -> None:
    pay("a")
    outlive.gather(partial(pay, "b"), partial(outlive.sleep, 0.2))
    outlive.wait_signal("never")


@outlive.flow
def undone() -> None:
    outlive.gather(partial(pay, "a"), partial(pay, "b"))
    outlive.sleep(0.2)
    pay("c")
    raise ValueError("no good")


@outlive.flow
def calling() -> list[str]:
    seen = [str(outlive.call(leaf, "one"))]
    try:
        outlive.call(leaf, "bad two")
    except RunFailed as error:
        seen.append(error.type_name)
    seen.append(outlive.spawn(leaf, "three", id="alone"))
    return seen


@outlive.flow
def orphaning() -> str:
    try:
        with outlive.timeout(0.5):
            outlive.call(waiting_leaf, "child")
    except TimedOut:
        pass
    outlive.sleep(0.2)
    return str(note("done"))


@outlive.flow
def abandoned() -> None:
    outlive.gather(
        partial(outlive.call, waiting_leaf, "one"), partial(outlive.call, waiting_leaf, "two")
    )


@outlive.flow
def mapping() -> list[str]:
    steps = outlive.map(check_item, range(5), limit=2)
    flows = outlive.map(leaf, ["x", "bad y", "z"], limit=2)
    effects = outlive.map(pay, ["p", "q"])
    return [
        str(each.value) if each.ok else type(each.error).__name__
        for each in (*steps, *flows, *effects)
    ]


@outlive.flow
def threaded() -> list[str]:
    """Branches of branches, plain steps in threads, chance and time."""

    def inner(name: str) -> str:
        outlive.sleep(0.1)
        return plain_note(f"{name} {outlive.random():.3f}")

    def outer(name: str) -> str:
        return " ".join(outlive.gather(partial(inner, name), partial(inner, name * 2)))

    try:
        seen = [*outlive.gather(partial(outer, "a"), partial(outer, "b"))]
        seen.append(f"{outlive.uuid()} {outlive.now() > outlive.now()}")
        return [each.split()[0] for each in seen[:2]]
    finally:
        world.ran.append("finally")


def _twin(flow: outlive.Flow[Any, Any]) -> tuple[Scenario, Scenario]:
    """The async scenario, and the same one with this flow."""
    found = next(each for each in awaited.SCENARIOS if each.name == flow.name)
    return found, replace(found, flow=flow)


_FLOWS: list[Any] = [
    signalled, questioned, desk, limited, swallowed, overdue, undone, calling, mapping,
]  # fmt: skip
TWINS = [_twin(flow) for flow in _FLOWS]
#: Not to be compared event by event: what becomes of children that nobody waits for is a matter
#: of luck, and a task group has no counterpart.
OWN = [
    *(_twin(flow)[1] for flow in (orphaning, abandoned, cancelled)),
    Scenario(flow=threaded, tick=awaited.nobody, ends=[["A", "B"]]),
]
PLAIN = [plain for _, plain in TWINS] + OWN
