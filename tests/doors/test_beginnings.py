"""Ways to begin a run: ensure, submit by name, options."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import outlive
from outlive.errors import (
    DefinitionRefused,
    ReplayMismatch,
    RunFailed,
    RunIdTaken,
    TimedOut,
    UsageError,
    ValueRefused,
)
from outlive.model.events import DeadlinePassed
from tests.harness.theatre import START_MS, Theatre
from tests.harness.world import note, world


@dataclass
class Parcel:
    """An argument of a class."""

    grams: int


@outlive.flow
async def greet(name: str, times: int = 1) -> str:
    await note(name)
    return f"hello {name}" * times


@outlive.flow(name="send")
async def send(parcel: Parcel) -> int:
    return parcel.grams


@outlive.flow(version="2")
async def newer() -> str:
    return "new"


@outlive.flow(deadline="1h", pins={"model": "m1"})
async def limited(tags: str, deadline: int = 0) -> str:
    await outlive.sleep("2h")
    return tags


async def driven(theatre: Theatre, handle: Any, *flows: Any) -> Any:
    """The outcome, a worker elsewhere driving it."""
    async with theatre.open().worker(flows):
        return await theatre.outcome(handle)


async def test_ensure_starts_once_and_compares_no_arguments(theatre: Theatre) -> None:
    """Whoever comes first decides; the flow must be the same."""
    app = theatre.open()
    first = await app.ensure(greet, "Ada", id="r")
    second = await app.ensure(greet, "Bob", 3, id="r")

    assert ["hello Ada"] * 2 == [await theatre.outcome(each) for each in (first, second)]
    assert "hello Ada" == await theatre.outcome(await theatre.open().ensure(greet, "Eve", id="r"))
    assert ["Ada"] == world.ran
    with pytest.raises(RunIdTaken, match="it is a run of flow 'greet', not 'send'"):
        await app.ensure(send, Parcel(1), id="r")


async def test_ensure_where_nothing_is_driven_submits(stage: Theatre) -> None:
    """A web app that only makes sure that there is a run."""
    app = stage.open(drive=False)
    handle = await app.ensure(greet, "Ada", id="r")
    await app.ensure(greet, "Bob", id="r")
    assert "pending" == await handle.status()

    assert "hello Ada" == await driven(stage, handle, greet)


async def test_submit_by_name_is_driven_by_who_has_the_code(theatre: Theatre) -> None:
    """Arguments by position and by name, defaults by the code, classes by its hints."""
    app = theatre.open()
    by_place = await app.submit("greet", "Ada", id="a")
    by_word = await app.submit("greet", name="Bob", times=2, id="b")
    parcel = await app.submit("send", Parcel(7), id="c")
    version = await app.submit("newer", id="d", version="2")
    async with theatre.open().worker([greet, send, newer]):
        ends = [await theatre.outcome(each) for each in (by_place, by_word, parcel, version)]

    assert ["hello Ada", "hello Bobhello Bob", 7, "new"] == ends


async def test_the_same_run_by_name_and_by_flow(theatre: Theatre) -> None:
    """The same id with the same call is the same run, however it is asked for."""
    app = theatre.open()
    await app.submit("greet", "Ada", id="named")
    await app.submit(greet, "Ada", id="coded")
    for run_id in ("named", "coded"):
        await app.submit("greet", "Ada", id=run_id)
        await app.submit(greet, "Ada", id=run_id)
        for flow in ("greet", greet):
            with pytest.raises(RunIdTaken, match=f"'{run_id}' is taken: .* has other arguments"):
                await app.submit(flow, "Bob", id=run_id)
    with pytest.raises(RunIdTaken, match="it is a run of flow 'greet', not 'other'"):
        await app.submit("other", "Ada", id="named")
    assert "hello Ada" == await driven(theatre, await app.get("named"), greet)


async def test_bad_arguments_by_name_surface_when_driven(stage: Theatre) -> None:
    """The run keeps its place and says why; nothing is guessed."""
    handle = await stage.open().submit("greet", 1, 2, 3, id="r")
    app = stage.open()
    running = await app.resume("r", [greet])

    with pytest.raises(ReplayMismatch, match=r"greet|positional"):
        await stage.outcome(running)
    assert "waiting" == await handle.status()


async def test_what_can_not_be_submitted_by_name_is_refused_at_once(stage: Theatre) -> None:
    """A name that no flow can have, a value that can't be recorded, what is no flow."""
    app = stage.open()

    with pytest.raises(DefinitionRefused, match="can't be a name"):
        await app.submit("a/b")
    for version in ("", "v" * 201, "日" * 200 + "s", "a\nb", 5):
        with pytest.raises(DefinitionRefused, match="is no text of 1 to 200 characters"):
            await app.submit("greet", version=version)
    with pytest.raises(ValueRefused):
        await app.submit("greet", object())
    with pytest.raises(UsageError, match="step note is not a flow; call it in one"):
        await app.submit(note, "x")  # type: ignore[arg-type]
    assert [] == list((await app.find()).items)


@pytest.mark.parametrize("flow", ["limited", limited])
async def test_options_of_submit_take_effect_and_show(theatre: Theatre, flow: Any) -> None:
    """Tags are found, the queue is kept, the deadline stops the run."""
    app = theatre.open()
    handle = await app.submit(
        flow, "x", id="r", queue="slow", tags={"customer": "7"}, deadline="10m"
    )
    (found,) = (await app.find(tag=("customer", "7"))).items
    assert ("r", "slow", {"customer": "7"}) == (
        found.head.run_id,
        found.header.queue,
        dict(found.header.tags),
    )
    start = (await theatre.fold("r")).start
    assert start.started_at + 600_000 == start.deadline_at
    async with theatre.open().worker([limited]):
        with pytest.raises(RunFailed):
            await theatre.outcome(handle, step=30)
    assert 1 == len(await theatre.events("r", DeadlinePassed))
    assert (await theatre.fold("r")).at < 3_600_000


async def test_options_leave_the_flows_own_names_alone(stage: Theatre) -> None:
    """``options`` is for flows whose parameters are called as ours."""
    app = stage.open()
    until = datetime.fromtimestamp(START_MS / 1000, UTC) + timedelta(days=1)
    tuned = limited.options(
        id="r", tags={"a": "b"}, queue="q", deadline=until, pins={"model": "m2"}
    )
    handle = await app.start(tuned, tags="mine", deadline=5)
    start = (await stage.fold("r")).start

    assert (START_MS + 86_400_000, {"a": "b"}, "q", {"model": "m2"}) == (
        start.deadline_at,
        start.tags,
        start.queue,
        start.pins,
    )
    assert "mine" == await stage.outcome(handle, step=60)
    assert ({"model": "m1"}, "1h") == (limited.preset.pins, limited.preset.deadline)


@outlive.flow
async def order(flow: str, *, queue: str = "slow", id: str = "none") -> list[str]:
    return [flow, queue, id]


@outlive.flow
async def ordering() -> list[Any]:
    made = order.options(id="child", queue="real")
    return [await outlive.call(made, flow="lamp", id="mine", queue="fast"), outlive.run_id()]


async def test_what_options_has_said_is_the_flows_own_as_a_keyword(stage: Theatre) -> None:
    """A run has its options from there, and its flow the arguments of the same names."""
    app, said = stage.open(), order.options(id="r", queue="real")
    handle = await app.submit(said, flow="lamp", queue="fast", id="mine")
    assert "r" == (await app.start(said, flow="lamp", queue="fast", id="mine")).id
    assert "r" == (await app.ensure(said, flow="lamp", queue="fast", id="mine")).id

    assert ["lamp", "fast", "mine"] == await stage.outcome(handle, step=1)
    assert "real" == (await app.read("r", limit=1)).header.queue
    parent = await stage.outcome(await app.start(ordering, id="p"), step=1)
    assert [["lamp", "fast", "mine"], "p"] == parent
    assert "real" == (await app.read("child", limit=1)).header.queue


async def test_options_of_other_names_stay_the_runs(stage: Theatre) -> None:
    """A flow that has no such parameter can't be meant."""
    app = stage.open()
    await app.submit(greet.options(queue="slow"), "Ada", queue="fast", id="r")

    assert "fast" == (await app.read("r", limit=1)).header.queue


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"tags": {"a": 1}}, "tags are texts by name, not {'a': 1}"),
        ({"pins": "m1"}, "pins are texts by name, not 'm1'"),
        ({"queue": ""}, "a queue is named by a text of 1 to 200 characters, not ''"),
        ({"queue": "\U0001f989" * 200}, "at most 600 bytes in UTF-8"),
        ({"queue": "q", "queue_key": "\U0001f989" * 200}, "at most 600 bytes in UTF-8"),
        ({"deadline": "soon"}, "'soon' is not a duration"),
        ({"deadline": datetime(2030, 1, 1)}, "has no time zone; add one"),  # noqa: DTZ001
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], why: str) -> None:
    """Before anything is started."""
    with pytest.raises(DefinitionRefused, match=why):
        greet.options(**options)


async def test_verbs_in_a_flow_are_names_of_the_package(stage: Theatre) -> None:
    """What flow code needs is there without a second import."""

    @outlive.flow
    async def child(number: int) -> int:
        return number * 2

    @outlive.flow
    async def parent() -> list[Any]:
        try:
            async with outlive.timeout("1s"):
                await outlive.wait_signal("never")
        except TimedOut:
            pass
        called = await outlive.call(child, 4)
        mapped = await outlive.map(child, [1, 2], limit=1)
        spawned = await outlive.spawn(child, 5, id="kid")
        return [called, [each.value for each in mapped], spawned]

    handle = await stage.open().start(parent, id="r")

    assert [8, [2, 4], "kid"] == await stage.outcome(handle)
    assert 10 == await stage.outcome(await stage.open().start(child, 5, id="kid"))


async def test_the_default_store_has_the_same_verbs(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``outlive.ensure`` and ``outlive.submit`` use the store of the environment."""
    monkeypatch.setenv("OUTLIVE_STORE", f"sqlite:///{tmp_path}/default.db")
    handle = await outlive.ensure(greet, "Ada", id="r")
    later = await outlive.submit("greet", "Bob", id="s", tags={"a": "b"})

    assert "hello Ada" == await asyncio.wait_for(handle.outcome(), 20)
    assert "pending" == await later.status()
    from outlive.app.default import default_app

    await default_app().aclose()
