"""Doubts that end with a human or with the flow, and ends that leave none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import outlive
from outlive.app.handle import Handle
from outlive.errors import RunFailed, StepNotInDoubt
from outlive.model.events import EffectDone, EffectDoubted, EffectRaised, MailRead
from tests.harness.bank import Bank, Receipt, crash_in_body
from tests.harness.scene import STAYING, Scene

# ---------------------------------------------------------------- ask and fail


async def in_doubt(scene: Scene, **options: Any) -> tuple[Bank, Handle]:
    """A run that waits for a human."""
    bank = Bank(scene, "breaks")
    handle = await scene.open(options.pop("settings", STAYING)).start(bank.flow(**options), id="r")
    await scene.status(handle, "in_doubt")
    return bank, handle


async def test_without_a_check_a_human_is_asked(scene: Scene) -> None:
    """The run leaves memory as in_doubt; nothing is tried again by itself."""
    bank, handle = await in_doubt(scene)

    for _ in range(20):
        scene.clock.advance(3600)
        await asyncio.sleep(0)

    assert await handle.status() == "in_doubt"
    assert len(bank.calls) == 1


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
async def test_happened_gives_the_effect_its_outcome(scene: Scene, elsewhere: bool) -> None:
    """A human's JSON, as the type that the effect returns; whoever drives the run then."""
    bank, handle = await in_doubt(scene)
    app = scene.open()
    await app.resolve("r", "0/pay#1", "happened", b'{"number": 3, "paid_to": "amy"}')
    if elsewhere:
        (first, *_) = scene.doors
        scene.kill(first)
        handle = await app.start(bank.flow(), id="r")

    assert await scene.outcome(handle) == ["Receipt", 3, "amy"]
    (done,) = await scene.events(handle, EffectDone)
    assert done.by == "human"
    assert len(bank.calls) == 1


async def test_not_happened_begins_it_again(scene: Scene) -> None:
    """The human's word is enough; the attempt that was asked about does not count."""
    _, handle = await in_doubt(scene)

    await scene.open().resolve("r", "0/pay#1", "not_happened")

    assert await scene.outcome(handle) == ["Receipt", 2, "bob"]


async def test_fail_tells_the_flow(scene: Scene) -> None:
    """It gets the error of the attempt; nobody knows whether it happened."""
    bank, handle = await in_doubt(scene)

    await scene.open().resolve("r", "0/pay#1", "fail")

    assert await scene.outcome(handle) == ["OSError", "connection lost"]
    (raised,) = await scene.events(handle, EffectRaised)
    assert (raised.happened, raised.by) == (None, "human")
    assert len(bank.calls) == 1


async def test_the_second_answer_is_refused(scene: Scene) -> None:
    """A doubt is settled once: the first word counts, also before anybody read it."""
    await in_doubt(scene)
    (first, *_) = scene.doors
    await first.aclose()
    app = scene.open()
    await app.resolve("r", "0/pay#1", "fail")

    with pytest.raises(StepNotInDoubt, match="before"):
        await app.resolve("r", "0/pay#1", "happened", b"null")
    with pytest.raises(StepNotInDoubt, match="no effect"):
        await app.resolve("r", "0/nothing#1", "fail")


async def test_json_that_does_not_fit_is_read_and_refused(scene: Scene) -> None:
    """The run stays in doubt and its worker alive; another word can settle it."""
    _, handle = await in_doubt(scene)
    app = scene.open()
    await app.resolve("r", "0/pay#1", "happened", b'{"number": "x"}')
    await scene.until(lambda: scene.events(handle, MailRead), step=0.05)
    await scene.status(handle, "in_doubt", step=0.05)

    await app.resolve("r", "0/pay#1", "happened", b'{"number": 4, "paid_to": "amy"}')

    assert await scene.outcome(handle) == ["Receipt", 4, "amy"]


async def test_fail_as_a_rule_tells_the_flow_at_once(scene: Scene) -> None:
    """The flow gets InDoubt with step, key and cause."""
    bank = Bank(scene, "breaks")

    name, text = await scene.run(bank.flow(doubt="fail"))

    assert name == "InDoubt"
    assert "0/pay#1" in text
    assert "connection lost" in text


async def test_fail_as_a_rule_holds_after_a_crash(scene: Scene) -> None:
    """The new process tells the flow, and does not repeat the effect."""
    bank = Bank(scene, "hangs")
    flow = bank.flow(doubt="fail")
    await crash_in_body(scene, bank, flow)

    handle = await scene.open().start(flow, id="r")

    assert (await scene.outcome(handle))[0] == "InDoubt"
    assert len(bank.calls) == 1


# ---------------------------------------------------------------- nothing happened


@pytest.mark.parametrize(
    "error",
    [outlive.NotHappened("declined"), ConnectionRefusedError("declined")],
    ids=["NotHappened", "declared"],
)
async def test_what_means_nothing_happened_is_no_doubt(scene: Scene, error: Exception) -> None:
    """It is tried again without asking anybody."""
    tried: list[int] = []

    @outlive.effect(
        not_happened=(ConnectionRefusedError,), retry=outlive.Retry(attempts=2, delay="1s")
    )
    async def pay() -> str:
        tried.append(outlive.attempt())
        if outlive.attempt() == 1:
            raise error
        return "paid"

    @outlive.flow
    async def paying() -> str:
        return str(await pay())

    handle = await scene.open().start(paying, id="r")

    assert await scene.outcome(handle) == "paid"
    assert tried == [1, 2]
    assert not await scene.events(handle, EffectDoubted)


async def test_an_error_of_an_effect_never_means_nothing_happened(scene: Scene) -> None:
    """Unless it was declared so, retries or not."""
    bank = Bank(scene, "breaks", "pays")
    handle = await scene.open().start(bank.flow(retry=outlive.Retry(attempts=5, delay=0)), id="r")

    await scene.status(handle, "in_doubt", step=1)

    assert len(bank.calls) == 1


async def test_a_flow_that_fails_waits_for_its_doubts(scene: Scene) -> None:
    """A run does not end before every effect that it began is settled."""
    bank = Bank(scene, "breaks")

    @outlive.effect(doubt="ask")
    async def pay() -> Receipt:
        return await bank.pay()

    @outlive.step
    async def broken() -> None:
        await scene.until(lambda: bank.calls)
        raise ValueError("unrelated")

    @outlive.flow
    async def failing() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(pay())
            group.create_task(broken())

    handle = await scene.open().start(failing, id="r")
    await scene.status(handle, "in_doubt")

    await scene.open().resolve("r", "0.1/pay#1", "fail")

    with pytest.raises(RunFailed, match="ExceptionGroup"):
        await scene.outcome(handle)
