"""Keys: derived or given, claimed store-wide, one effect per key whoever asks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import outlive
from outlive.errors import DefinitionRefused, KeyTaken, RunFailed
from outlive.model.events import EffectDone, EffectIntended, EffectRaised
from outlive.model.ids import derived_key
from tests.harness.bank import Bank
from tests.harness.scene import EVICTING, Scene


async def test_a_derived_key_belongs_to_run_and_step(scene: Scene) -> None:
    """Another run or another step has another; nobody else can claim it."""
    bank = Bank(scene)
    flow = bank.ordering(None)

    await scene.run(flow, "a", 5, id="one")
    await scene.run(flow, "a", 5, id="two")

    assert bank.paid == [(derived_key("one", "0/pay#1"), 5), (derived_key("two", "0/pay#1"), 5)]


async def test_every_attempt_has_the_same_key(scene: Scene) -> None:
    """That is what makes a repeat harmless for a receiver that honours it."""
    keys: list[str] = []

    @outlive.effect(retry=outlive.Retry(attempts=3, delay=0))
    async def pay() -> str:
        keys.append(outlive.key())
        if outlive.attempt() < 3:
            raise outlive.NotHappened("busy")
        return "paid"

    @outlive.flow
    async def paying() -> str:
        return await pay()

    assert await scene.run(paying) == "paid"
    assert len(keys) == 3
    assert len(set(keys)) == 1


@pytest.mark.parametrize(
    "key", ["refund:{order}", lambda order, cents: f"refund:{order}"], ids=["template", "callable"]
)
async def test_a_key_is_made_from_the_arguments(scene: Scene, key: Any) -> None:
    """By a template or by a function; the intent has it."""
    bank = Bank(scene)
    handle = await scene.open().start(bank.ordering(key), "77", 5, id="r")

    await scene.outcome(handle)

    assert bank.paid == [("refund:77", 5)]
    (intent,) = await scene.events(handle, EffectIntended)
    assert intent.key == "refund:77"


@pytest.mark.parametrize("made", ["", 7, None])
async def test_a_key_that_is_no_text_is_refused(scene: Scene, made: Any) -> None:
    """Before anything is recorded."""
    bank = Bank(scene)

    with pytest.raises(RunFailed, match=DefinitionRefused.__name__):
        await scene.run(bank.ordering(lambda order, cents: made), "77", 5)
    assert bank.paid == []


async def test_a_template_with_a_part_that_is_not_there_says_so(scene: Scene) -> None:
    """The flow fails with the name that is missing; nothing was done."""
    bank = Bank(scene)

    with pytest.raises(RunFailed, match="nobody"):
        await scene.run(bank.ordering("refund:{order.nobody}"), "77", 5)
    assert bank.paid == []


async def test_the_same_key_with_the_same_arguments_is_one_effect(scene: Scene) -> None:
    """A second run gets the outcome of the first; the receiver is not asked again."""
    bank = Bank(scene)
    flow = bank.ordering("refund:{order}")

    first = await scene.run(flow, "77", 5, id="one")
    second = await scene.open().start(flow, "77", 5, id="two")

    assert await scene.outcome(second) == first == "receipt 1"
    assert len(bank.paid) == 1
    (done,) = await scene.events(second, EffectDone)
    assert done.by == "holder"


async def test_whoever_comes_second_waits_for_the_first(scene: Scene) -> None:
    """Also if the first one's effect takes its time, and leaves memory meanwhile."""
    bank = Bank(scene)
    bank.gate.clear()
    flow = bank.ordering("refund:{order}")
    first = await scene.open().start(flow, "77", 5, id="one")
    await scene.until(lambda: bank.calls)
    second = await scene.open(EVICTING).start(flow, "77", 5, id="two")
    await scene.status(second, "waiting")
    assert len(bank.paid) == 0
    bank.gate.set()

    assert await scene.outcome(first) == "receipt 1"
    assert await scene.outcome(second) == "receipt 1"
    assert len(bank.paid) == 1


async def test_the_same_key_with_other_arguments_is_taken(scene: Scene) -> None:
    """The error names both: who holds it, and who wanted it."""
    bank = Bank(scene)
    flow = bank.ordering("refund:{order}")
    await scene.run(flow, "77", 5, id="one")

    @outlive.flow
    async def catching() -> list[str]:
        try:
            await pay_again("77", 6)
        except KeyTaken as error:
            return [error.key, error.holder, error.wanted]
        return []

    @outlive.effect(name="pay", key="refund:{order}")
    async def pay_again(order: str, cents: int) -> str:
        return await bank.order(cents)

    handle = await scene.open().start(catching, id="two")

    assert await scene.outcome(handle) == [
        "refund:77",
        "effect 0/pay#1 of run one",
        "effect 0/pay#1 of run two",
    ]
    assert len(bank.paid) == 1
    (raised,) = await scene.events(handle, EffectRaised)
    assert raised.happened is False


async def test_two_effects_of_one_run_share_a_key_as_two_runs_do(scene: Scene) -> None:
    """Called twice with the same arguments it happens once, also side by side."""
    bank = Bank(scene)

    @outlive.effect(key="refund:{order}")
    async def pay(order: str) -> str:
        return await bank.order(1)

    @outlive.flow
    async def eager() -> list[str]:
        both = await asyncio.gather(pay("77"), pay("77"))
        return [*both, await pay("77")]

    assert await scene.run(eager) == ["receipt 1"] * 3
    assert len(bank.paid) == 1


async def test_the_holders_failure_is_everybodys(scene: Scene) -> None:
    """If the first one's effect did not happen, the second is told the same."""

    @outlive.effect(key="refund:{order}")
    async def pay(order: str) -> str:
        raise outlive.NotHappened("closed")

    @outlive.flow
    async def paying(order: str) -> str:
        try:
            return await pay(order)
        except outlive.NotHappened as error:
            return f"no: {error}"

    assert await scene.run(paying, "77", id="one") == "no: closed"
    assert await scene.run(paying, "77", id="two") == "no: closed"


async def test_a_claim_survives_its_process(scene: Scene) -> None:
    """Killed between intent and outcome: the same run and step still hold the key."""
    bank = Bank(scene)
    bank.gate.clear()

    def find(key: str) -> Any:
        return "found" if bank.paid else outlive.NOT_HAPPENED

    flow = bank.ordering("refund:{order}", check=find, settle_after=0)
    app = scene.open()
    await app.start(flow, "77", 5, id="one")
    await scene.until(lambda: bank.calls)
    scene.kill(app)
    bank.gate = asyncio.Event()
    bank.gate.set()

    handle = await scene.open().start(flow, "77", 5, id="one")

    assert await scene.outcome(handle) == "receipt 1"
    assert bank.paid == [("refund:77", 5)]


async def test_a_long_key_is_a_key(scene: Scene) -> None:
    """However long, whatever is in it."""
    bank = Bank(scene)
    flow = bank.ordering("refund:{order}")
    order = "../" + "ä" * 5000

    first = await scene.run(flow, order, 5, id="one")

    assert await scene.run(flow, order, 5, id="two") == first
    assert len(bank.paid) == 1
