"""Doubts: an attempt whose end nobody knows is settled by its rule, never guessed."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import outlive
from outlive.errors import StoreFailed
from outlive.model.events import (
    AttemptFailed,
    Claimed,
    EffectDone,
    EffectDoubted,
    EffectIntended,
    EffectRaised,
)
from outlive.settings import Settings
from outlive.views.timeline import timeline
from tests.harness.bank import Bank, crash_in_body, seconds_after
from tests.harness.scene import EVICTING, STAYING, Scene

# ---------------------------------------------------------------- check


async def test_a_check_that_finds_it_ends_the_doubt_at_once(scene: Scene) -> None:
    """The outcome is what the check returned; the body is not run again."""
    bank = Bank(scene, "pays and breaks")
    flow = bank.flow(check=bank.find, settle_after="1h")
    handle = await scene.open().start(flow, id="r")

    assert await scene.outcome(handle, step=0) == ["Receipt", 1, "bob"]
    (done,) = await scene.events(handle, EffectDone)
    assert done.by == "check"
    assert len(bank.calls) == 1


async def test_a_check_that_finds_nothing_counts_after_settle_after(scene: Scene) -> None:
    """Asked too early it means "unknown" and is asked again; then the flow is told."""
    bank = Bank(scene, "breaks")
    began = scene.clock.now_ms()
    handle = await scene.open().start(bank.flow(check=bank.find, settle_after="30s"), id="r")
    await scene.until(lambda: bank.checks)
    assert bank.checks == [began]

    assert await scene.outcome(handle, step=0.5) == ["OSError", "connection lost"]
    (raised,) = await scene.events(handle, EffectRaised)
    assert (raised.happened, raised.by) == (False, "check")
    assert seconds_after(bank.checks, 1, began) >= 30
    assert len(bank.calls) == 1


async def test_what_provably_did_not_happen_is_tried_again(scene: Scene) -> None:
    """Within the retries that were asked for."""
    bank = Bank(scene, "breaks", "breaks", "pays")
    flow = bank.flow(
        check=bank.find, settle_after="1s", retry=outlive.Retry(attempts=3, delay="1s")
    )
    handle = await scene.open().start(flow, id="r")

    assert await scene.outcome(handle, step=0.25) == ["Receipt", 3, "bob"]
    assert len(await scene.events(handle, EffectIntended)) == 3
    assert len(await scene.events(handle, EffectDoubted)) == 2
    assert [1, 2] == [event.attempt for event in await scene.events(handle, AttemptFailed)]


async def test_a_dead_drivers_attempt_is_asked_about_first(scene: Scene) -> None:
    """It had happened: the new process learns the outcome and does not repeat it."""
    bank = Bank(scene, "pays and hangs")
    flow = bank.flow(check=bank.find, settle_after="30s")
    await crash_in_body(scene, bank, flow)

    handle = await scene.open().start(flow, id="r")

    assert await scene.outcome(handle, step=0) == ["Receipt", 1, "bob"]
    assert len(bank.calls) == 1


async def test_a_dead_drivers_attempt_is_begun_again_when_it_did_not_happen(scene: Scene) -> None:
    """It does not count as an attempt; but only after the receiver had its time."""
    bank = Bank(scene, "hangs", "pays")
    flow = bank.flow(check=bank.find, settle_after="30s")
    await crash_in_body(scene, bank, flow)
    died = scene.clock.now_ms()

    handle = await scene.open().start(flow, id="r")

    assert await scene.outcome(handle, step=0.5) == ["Receipt", 2, "bob"]
    assert seconds_after(bank.calls, 1, died) >= 30
    assert [1, 1] == [event.attempt for event in await scene.events(handle, EffectIntended)]


async def test_not_happened_is_not_believed_while_a_silent_driver_may_run(scene: Scene) -> None:
    """A worker that may only be stopped is not taken for dead: the limit must pass first."""
    bank = Bank(scene, "hangs", "pays")
    flow = bank.flow(check=bank.find, settle_after="30s", timeout="60h")
    app = scene.open()
    await app.start(flow, id="r")
    await scene.until(lambda: bank.calls)
    begun = scene.clock.now_ms()
    scene.doors[app].error = StoreFailed("stopped, not dead")
    handle = await scene.open(EVICTING).start(flow, id="r")

    assert await scene.outcome(handle, step=900) == ["Receipt", 2, "bob"]
    assert seconds_after(bank.calls, 1, begun) >= 60 * 3600 + 30
    assert len(bank.checks) >= 2
    certain = [claim.certain for claim in await scene.events(handle, Claimed)]
    assert certain[0]
    assert not any(certain[1:])


@pytest.mark.parametrize("settings", [STAYING, EVICTING], ids=["staying", "evicting"])
async def test_a_check_that_never_knows_ends_with_a_human(scene: Scene, settings: Settings) -> None:
    """After a while the run is in doubt, and a human's word settles it."""
    bank = Bank(scene, "breaks")
    bank.unsure = True
    flow = bank.flow(check=bank.find, settle_after="1s")
    handle = await scene.open(settings).start(flow, id="r")
    await scene.status(handle, "in_doubt", step=1)
    (*_, doubted) = await scene.events(handle, EffectDoubted)
    assert doubted.asks
    app = scene.open()

    await app.resolve("r", "0/pay#1", "happened", b'{"number": 9, "paid_to": "eve"}')

    assert await scene.outcome(handle) == ["Receipt", 9, "eve"]


async def test_a_check_that_fails_does_not_know(scene: Scene) -> None:
    """Its error is no answer; it is asked again."""
    bank = Bank(scene, "pays and breaks")
    fails = [1, 1]

    async def find(key: str) -> Any:
        if fails:
            fails.pop()
            raise ConnectionError("also down")
        return bank.find(key)

    assert await scene.run(bank.flow(check=find)) == ["Receipt", 1, "bob"]
    assert not fails


@outlive.step
async def look_for(order: str) -> Any:
    return await book_of(order)


async def book_of(order: str) -> Any:
    return outlive.NOT_HAPPENED if order == "77" else None


class Finder:
    """A check that is an object."""

    async def __call__(self, order: str) -> Any:
        return await book_of(order)


@pytest.mark.parametrize(
    "check", [lambda order: book_of(order), look_for, Finder()], ids=["lambda", "step", "object"]
)
async def test_what_a_check_leaves_to_be_awaited_is_awaited(scene: Scene, check: Any) -> None:
    """A coroutine is no outcome: it is asked what it says."""

    @outlive.effect(check=check, settle_after=0)
    async def pay(order: str) -> str:
        raise OSError("lost")

    @outlive.flow
    async def paying() -> str:
        return await pay("77")

    handle = await scene.open().start(paying, id="r")
    with pytest.raises(outlive.errors.RunFailed, match="OSError: lost"):
        await scene.outcome(handle)
    (raised,) = await scene.events(handle, EffectRaised)
    assert (raised.happened, raised.by) == (False, "check")


@pytest.mark.parametrize("answer", [outlive.NotHappened, object()], ids=["class", "object"])
async def test_an_answer_that_is_no_outcome_is_no_answer(
    scene: Scene, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It is asked again, which is logged once; then a human is."""

    @outlive.effect(check=lambda: answer, settle_after=0)
    async def pay() -> str:
        raise OSError("lost")

    @outlive.flow
    async def paying() -> str:
        return await pay()

    handle = await scene.open().start(paying, id="r")
    await scene.status(handle, "in_doubt", step=1)

    assert [] == await scene.events(handle, EffectRaised)
    (told,) = [line for line in caplog.messages if "the check of" in line]
    assert "effect 0/pay#1 of run r" in told
    assert "can't be recorded" in told


async def test_a_check_that_fails_is_logged_once_for_each_kind_of_error(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """Or a mistake in it would never be found."""
    errors = [KeyError("a"), KeyError("b"), ValueError("c")]

    def find() -> Any:
        if errors:
            raise errors.pop(0)
        return "found"

    @outlive.effect(check=find, settle_after=0)
    async def pay() -> str:
        raise OSError("lost")

    @outlive.flow
    async def paying() -> str:
        return await pay()

    assert await scene.run(paying) == "found"
    told = [line for line in caplog.messages if "the check of" in line]
    assert ["KeyError: 'a'", "ValueError: c"] == [
        line.split("failed: ")[1].split("\n")[0] for line in told
    ]


async def test_a_body_that_leaves_its_work_unawaited_is_in_doubt(scene: Scene) -> None:
    """Nobody can say that it happened: the rule decides, here the check."""
    paid: list[str] = []

    async def send() -> str:
        paid.append("sent")
        return "sent"

    @outlive.effect(check=lambda: outlive.NOT_HAPPENED, settle_after=0)
    def pay() -> Any:
        return send()

    @outlive.flow
    async def paying() -> Any:
        return await pay()

    handle = await scene.open().start(paying, id="r")
    with pytest.raises(outlive.errors.RunFailed, match="returned a coroutine that nobody awaits"):
        await scene.outcome(handle)
    (raised,) = await scene.events(handle, EffectRaised)
    assert (raised.happened, paid) == (False, [])


async def test_a_plain_check_runs_in_a_thread_with_what_it_asks_for(scene: Scene) -> None:
    """It gets the arguments by name, and the key if its signature has it."""
    asked: list[Any] = []

    def find(order: str, key: str) -> Any:
        asked.append((order, key, threading.current_thread() is threading.main_thread()))
        return "found"

    @outlive.effect(key="pay:{order}", check=find)
    async def pay(order: str, cents: int) -> str:
        raise OSError("lost")

    @outlive.flow
    async def paying() -> str:
        return await pay("77", 5)

    assert await scene.run(paying) == "found"
    assert asked == [("77", "pay:77", False)]


async def test_a_check_inside_its_limit_is_not_a_leaf_for_effects(scene: Scene) -> None:
    """Nothing durable begins in a check, either: it only looks."""

    @outlive.effect
    async def other() -> None: ...

    async def find() -> Any:
        try:
            await other()
        except outlive.errors.InsideStep:
            return "refused"
        return "not refused"

    @outlive.effect(check=find)
    async def pay() -> str:
        raise OSError("lost")

    @outlive.flow
    async def paying() -> str:
        return await pay()

    assert await scene.run(paying) == "refused"


# ---------------------------------------------------------------- time limits


async def test_an_effect_past_its_limit_is_in_doubt(scene: Scene) -> None:
    """It is cancelled, and then settled like any doubt."""
    bank = Bank(scene, "pays and hangs")
    flow = bank.flow(check=bank.find, timeout="10s", settle_after="5s")
    handle = await scene.open().start(flow, id="r")

    assert await scene.outcome(handle, step=0.5) == ["Receipt", 1, "bob"]
    (doubted,) = await scene.events(handle, EffectDoubted)
    assert doubted.error.type_name == "TimedOut"
    assert doubted.at >= 10_000


async def test_a_plain_effect_past_its_limit_is_never_repeated_beside_itself(
    scene: Scene,
) -> None:
    """Its thread can't be stopped: nobody looks before it has returned."""
    running: list[int] = []
    release = threading.Event()

    @outlive.effect(timeout="1s", doubt="retry", retry=outlive.Retry(attempts=5, delay=0))
    def pay() -> str:
        running.append(outlive.attempt())
        release.wait(20)
        return f"paid at {outlive.attempt()}"

    @outlive.flow
    async def paying() -> str:
        return str(await pay())

    handle = await scene.open().start(paying, id="r")
    await scene.until(lambda: running)
    for _ in range(20):
        scene.clock.advance(10)
        await asyncio.sleep(0)
    assert running == [1]
    release.set()

    assert await scene.outcome(handle) == "paid at 1"


# ---------------------------------------------------------------- retry


async def test_retry_repeats_within_its_attempts(scene: Scene) -> None:
    """The user's word is that the receiver honours the key."""
    bank = Bank(scene, "breaks", "breaks", "pays")
    flow = bank.flow(doubt="retry", retry=outlive.Retry(attempts=3, delay="1s"))

    assert await scene.run(flow) == ["Receipt", 3, "bob"]


async def test_retry_tells_the_flow_when_its_attempts_are_used_up(scene: Scene) -> None:
    """Nobody knows whether it happened, and the journal says so."""
    bank = Bank(scene, "breaks", "breaks")
    flow = bank.flow(doubt="retry", retry=outlive.Retry(attempts=2, delay="1s"))
    handle = await scene.open().start(flow, id="r")

    assert await scene.outcome(handle) == ["OSError", "connection lost"]
    (raised,) = await scene.events(handle, EffectRaised)
    assert raised.happened is None


async def test_an_attempt_that_is_repeated_unasked_is_recorded_as_unknown(scene: Scene) -> None:
    """Whether it raised or its driver died: the journal never says that it did not happen."""
    bank = Bank(scene, "hangs", "breaks", "pays")
    flow = bank.flow(doubt="retry", retry=outlive.Retry(attempts=2, delay="1s"))
    await crash_in_body(scene, bank, flow)

    handle = await scene.open().start(flow, id="r")
    await scene.outcome(handle)

    failed = await scene.events(handle, AttemptFailed)
    assert [event.happened for event in failed] == [None, None]
    assert not any("not happen" in event.error.message for event in failed)
    rows = timeline("r", await scene.events(handle, object))
    notes = {row.note for row in rows if row.what == "attempt failed"}
    assert notes == {"nobody knows whether it happened; it is repeated under the same key"}


async def test_what_a_check_denies_is_recorded_as_not_happened(scene: Scene) -> None:
    """That somebody knew."""
    bank = Bank(scene, "breaks", "pays")
    retry = outlive.Retry(attempts=2, delay="1s")
    flow = bank.flow(check=bank.find, settle_after="1s", retry=retry)
    handle = await scene.open().start(flow, id="r")
    await scene.outcome(handle)

    (failed,) = await scene.events(handle, AttemptFailed)
    assert failed.happened is False


async def test_retry_begins_a_dead_drivers_attempt_again_at_once(scene: Scene) -> None:
    """It does not count as an attempt."""
    bank = Bank(scene, "hangs", "pays")
    flow = bank.flow(doubt="retry")
    await crash_in_body(scene, bank, flow)

    handle = await scene.open().start(flow, id="r")

    assert await scene.outcome(handle, step=0) == ["Receipt", 2, "bob"]
