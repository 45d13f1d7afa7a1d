"""Records that are complete: how long a step took, what models were used for, who did it."""

from __future__ import annotations

import asyncio
import getpass
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import outlive
from outlive import Usage, sync
from outlive.cli.entry import main
from outlive.errors import RunFailed, UsageError
from outlive.model.events import (
    AttemptFailed,
    ChapterBegan,
    EffectDone,
    EffectDoubted,
    EffectRaised,
    Forked,
    ForkMade,
    SignalReceived,
    StepDone,
    StepRaised,
    encode_events,
)
from outlive.model.run import fold
from outlive.stores.memory import MemoryStore
from outlive.views.timeline import timeline
from tests.harness.scene import Scene
from tests.order.journals import drive, drive_on


@outlive.step
async def think(text: str) -> str:
    return text.upper()


# ---------------------------------------------------------------- how long


async def test_a_steps_duration_is_recorded() -> None:
    """Of the attempt that counted, and of those that did not; shown like that of an effect."""

    @outlive.step(retry=outlive.Retry(attempts=2, delay=0))
    async def slow() -> None:
        await asyncio.sleep(0.02)
        if outlive.attempt() == 1:
            raise OSError("again")

    @outlive.step
    def plain() -> None:
        raise ValueError("at once")

    @outlive.flow
    async def flow() -> None:
        await slow()
        with pytest.raises(ValueError, match="at once"):
            await plain()

    events = (await drive(MemoryStore(), flow, run_id="r")).events
    told: dict[type, Any] = {type(event): event for event in events}
    took = [told[kind].took for kind in (AttemptFailed, StepDone, StepRaised)]

    assert all(ms is not None for ms in took)
    assert min(took[:2]) >= 19
    rows = {row.what: row.duration_ms for row in timeline("r", events) if row.step}
    assert took == [rows["attempt failed"], rows["done"], rows["raised"]]


def test_what_is_new_in_a_record_is_small() -> None:
    """Two bytes of a step that took less than 128 ms, two of an effect; old records are read."""
    old_step = [10, 5, "0/think#1", 1, b"\x80", b"", b"\xa1x"]
    old_effect = [21, 5, "0/pay#1", 1, b"\x01", ""]
    step = StepDone(5, "0/think#1", 1, b"\x80", b"", b"\xa1x", 127)
    effect = EffectDone(5, "0/pay#1", 1, b"\x01")

    for old, new in ((old_step, step), (old_effect, effect)):
        before, after = msgspec.msgpack.encode([old]), encode_events([new])
        assert len(before) + 2 == len(after)
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(old_step), type=StepDone)
    assert (None, None) == (read.took, read.usage)


# ---------------------------------------------------------------- usage


@outlive.step(retry=outlive.Retry(attempts=2, delay=0))
async def ask_model(fails: bool) -> str:
    outlive.usage(model="big", input_tokens=10, output_tokens=2, cost=0.5)
    outlive.usage(model="big", input_tokens=5)
    outlive.usage(model="small", output_tokens=1)
    if fails and outlive.attempt() == 1:
        raise OSError("overloaded")
    return "said"


@outlive.effect(doubt="retry", retry=outlive.Retry(attempts=2, delay=0))
async def post(fails: bool) -> str:
    outlive.usage(model="small", input_tokens=7, cost=0.25)
    if fails and outlive.attempt() == 1:
        raise OSError("no answer")
    return "posted"


BIG = Usage("big", 15, 2, 0.5, 2)
SMALL = Usage("small", 0, 1, 0.0, 1)


async def test_usage_adds_up_per_model_and_run(scene: Scene) -> None:
    """Attempts that failed count as well: what they used was used."""

    @outlive.flow
    async def flow() -> None:
        await ask_model(True)
        await post(True)

    handle = await scene.open().start(flow, id="r")
    await scene.outcome(handle)

    done = await scene.events(handle, StepDone, AttemptFailed, EffectDone, EffectDoubted)
    assert (BIG, SMALL) == done[0].usage
    assert (BIG, SMALL) == done[1].usage
    assert [(Usage("small", 7, 0, 0.25, 1),)] * 2 == [e.usage for e in done[2:] if e.usage]
    wanted = {"big": Usage("big", 30, 4, 1.0, 4), "small": Usage("small", 14, 2, 0.5, 4)}
    assert wanted == await handle.usage()


async def test_usage_is_counted_once_whatever_is_replayed() -> None:
    """Killed behind every event, a run has used what it would have used."""

    @outlive.flow
    async def flow() -> None:
        await ask_model(False)
        await post(False)
        await ask_model(False)

    first = await drive(MemoryStore(), flow, run_id="r")
    wanted = {"big": Usage("big", 30, 4, 1.0, 4), "small": Usage("small", 7, 2, 0.25, 3)}
    for cut in range(2, len(first.events)):
        driven = await drive_on(first.events[:cut], flow, run_id="r")
        assert wanted == fold(driven.events).usage, cut


async def test_chapters_carry_what_was_used(scene: Scene) -> None:
    """The records of the chapters before may be gone."""

    @outlive.flow
    async def flow(chapters: int) -> None:
        await post(False)
        if chapters:
            await outlive.carry(chapters - 1)

    handle = await scene.open().start(flow, 2, id="r")
    await scene.outcome(handle)

    assert {"small": Usage("small", 21, 0, 0.75, 3)} == await handle.usage()
    events = await handle.read()
    last = max(n for n, event in enumerate(events) if type(event) is ChapterBegan)
    assert {"small": Usage("small", 21, 0, 0.75, 3)} == fold(events[last:]).usage


async def test_what_was_known_before_a_retry_is_not_counted_again() -> None:
    """The outcome is told to the flow again, and its use is not."""
    broken = [True]

    @outlive.flow
    async def flow() -> None:
        both = await asyncio.gather(fail(), late(), return_exceptions=True)
        if both[0] is not None:
            raise both[0]

    @outlive.step
    async def late() -> None:
        await asyncio.sleep(0.05)
        await ask_model.plain(False)

    @outlive.step
    async def fail() -> None:
        if broken:
            broken.clear()
            raise ValueError("once")

    async with outlive.open("memory://") as app:
        handle = await app.start(flow, id="r")
        with pytest.raises(RunFailed):
            await handle
        await app.retry("r")
        again = await app.resume("r", [flow])
        await again.outcome("30s")

        assert 3 == sum(type(event) is StepDone for event in await again.read())
        assert {"big": BIG, "small": SMALL} == await again.usage()


async def test_a_fork_counts_what_it_used_itself(scene: Scene) -> None:
    """What it shares was used by the other run."""

    @outlive.flow
    async def flow() -> None:
        await ask_model(False)
        await think("x")

    app = scene.open()
    handle = await app.start(flow, id="r")
    await scene.outcome(handle)
    seq = 1 + [type(event) for event in await handle.read()].index(StepDone)
    fork = await handle.fork(at=seq, id="f", by="ann")
    await scene.outcome(fork)

    assert {} == await fork.usage()
    assert ["ann"] == [event.by for event in await scene.events("f", Forked)]
    assert ["ann"] == [event.by for event in await scene.events("r", ForkMade)]


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ({"model": ""}, "a model has a name"),
        ({"model": 7}, "a model has a name"),
        ({"model": "m", "input_tokens": -1}, "input_tokens=-1"),
        ({"model": "m", "output_tokens": 1.5}, "output_tokens=1.5"),
        ({"model": "m", "input_tokens": True}, "input_tokens=True"),
        ({"model": "m", "cost": float("nan")}, "cost=nan"),
        ({"model": "m", "cost": -0.1}, "cost=-0.1"),
        ({"model": "m", "cost": "1"}, "cost='1'"),
    ],
)
def test_impossible_usage_is_refused(told: dict[str, Any], text: str) -> None:
    """The message says which part of it."""
    with pytest.raises(UsageError, match=text):
        outlive.usage(**told)


async def test_usage_belongs_into_a_body(scene: Scene) -> None:
    """In a flow it is refused with the place for it; outside a run it does nothing."""

    @outlive.flow
    async def flow() -> str:
        with pytest.raises(UsageError, match="call it in the body of a step or effect"):
            outlive.usage(model="m")
        return "told"

    assert "said" == await ask_model(False)
    assert "told" == await scene.run(flow)


# ---------------------------------------------------------------- who


@outlive.effect(doubt="ask", timeout="1m")
async def doubtful() -> str:
    raise OSError("no answer")


@outlive.flow
async def waits() -> str:
    with pytest.raises(OSError, match="no answer"):
        await doubtful()
    return str(await outlive.wait_signal("go", str))


async def test_who_did_it_is_recorded(scene: Scene) -> None:
    """On signals and resolutions, as on answers, cancels and retries."""
    app = scene.open()
    handle = await app.start(waits, id="r")
    await scene.status(handle, "in_doubt")
    await app.resolve("r", "0/doubtful#1", "fail", by="ann")
    await handle.signal("go", "on", by="bob")
    assert "on" == await scene.outcome(handle)

    assert ["bob"] == [event.by for event in await scene.events(handle, SignalReceived)]
    raised = await scene.events(handle, EffectRaised)
    assert [("human", "ann")] == [(event.by, event.who) for event in raised]
    notes = " ".join(row.note for row in timeline("r", await handle.read()))
    assert "told by ann" in notes
    assert ", by bob" in notes
    with pytest.raises(UsageError, match="printable text"):
        await handle.signal("go", "on", by="a\nb")


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A store with a run in doubt, which nobody drives."""
    url = f"sqlite:///{tmp_path / 'runs.db'}"

    async def prepare() -> None:
        async with outlive.open(url) as app:
            handle = await app.start(waits, id="r")
            while await handle.status() != "in_doubt":
                await asyncio.sleep(0.01)

    asyncio.run(prepare())
    return url


def test_the_command_line_tells_who(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """``--by``, or the user who is logged in; ``show`` has durations and usage."""
    ask = ["--store", store]
    assert 0 == main(["resolve", "r", "doubtful", "--fail", "--by", "ann", *ask])
    assert 0 == main(["signal", "r", "go", "on", *ask])
    with sync.open(store) as app:
        assert "on" == app.resume("r", [waits]).outcome("30s")
    capsys.readouterr()
    assert 0 == main(["show", "r", "--json", *ask])
    shown = json.loads(capsys.readouterr().out)

    notes = [row["note"] for row in shown["timeline"]]
    assert any("told by ann" in note for note in notes), notes
    assert any(f", by {getpass.getuser()}" in note for note in notes), notes
    assert [] == shown["usage"]


def test_show_adds_up_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Per model, for people and as JSON."""
    url = f"sqlite:///{tmp_path / 'runs.db'}"

    @outlive.flow
    async def flow() -> str:
        return await ask_model(False)

    with sync.open(url) as app:
        handle = app.start(flow, id="r")
        handle.outcome("30s")
        assert {"big": BIG, "small": SMALL} == handle.usage()
    assert 0 == main(["show", "r", "--store", url])
    assert "big: 15 tokens in, 2 out, cost 0.5, 2 calls; small:" in capsys.readouterr().out
    assert 0 == main(["show", "r", "--json", "--store", url])
    assert 15 == json.loads(capsys.readouterr().out)["usage"][0]["input_tokens"]
