"""Published values and tags: the newest counts, seen when durable, never written by a replay."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import outlive
from outlive import sync
from outlive.engine.inputs import encode_own
from outlive.errors import NotInRun, OutliveError, RunFailed, UsageError
from outlive.journal.seal.keys import new_key
from outlive.model.defaults import PUBLISHED_BYTES_MAX, PUBLISHED_NAMES_MAX
from outlive.model.events import Published, StepDone, Tagged
from outlive.model.run import publish as fold_published
from outlive.views.runs import summary
from tests.harness.theatre import Theatre
from tests.order.journals import drive_on


class Gate:
    """Where a body waits until the test lets it go on."""

    def __init__(self) -> None:
        self.begun = 0
        self.open = asyncio.Event()


gate: Gate


@pytest.fixture(autouse=True)
async def _fresh_gate() -> None:
    global gate  # bodies find it here
    gate = Gate()


@outlive.step
async def work(number: int) -> int:
    await outlive.publish(progress=number)
    gate.begun = number
    return number


@outlive.step
async def held() -> str:
    await outlive.publish(stage="held", progress=0.5)
    gate.begun += 1
    await gate.open.wait()
    return "through"


@outlive.step
def plain(number: int) -> int:
    sync.publish(progress=number)
    sync.tag(team=f"t{number}")
    return number


@outlive.flow
async def busy() -> str:
    await outlive.publish(stage="begun")
    await work(1)
    await outlive.publish(stage="halfway")
    done = await held()
    await outlive.publish(stage="done", progress=1.0)
    return done


@outlive.flow
async def tagged() -> list[int]:
    await outlive.tag(team="a", city="Rome")
    return [await plain(1), await plain(2)]


async def is_shown(theatre: Theatre, stage: str) -> bool:
    return (await theatre.fold("r")).published.get("stage") == encode_own(stage)


async def test_the_newest_value_of_each_name_is_seen(theatre: Theatre) -> None:
    """While the run is under way and after its end, by handles of any process."""
    app = theatre.open()
    handle = await app.start(busy, id="r")
    await theatre.until(lambda: gate.begun == 2)
    await theatre.until(lambda: is_shown(theatre, "held"))
    watcher = await theatre.open(drive=False).get("r")
    assert {"stage": "held", "progress": 0.5} == await watcher.published()
    gate.open.set()

    assert "through" == await theatre.outcome(handle)
    assert {"stage": "done", "progress": 1.0} == await watcher.published()
    kinds = [event.value async for event in watcher.events() if event.kind == "Published"]
    assert {"stage": "done", "progress": 1.0} == kinds[-1]


async def test_a_value_is_not_seen_before_it_is_durable(stage: Theatre) -> None:
    """What is seen comes from the store alone, never from the process that publishes."""
    app = stage.open()
    handle = await app.start(busy, id="r")
    await stage.until(lambda: gate.begun == 2, 0)

    assert "held" not in (await handle.published()).values()
    stage.pass_time(0.3)
    await stage.until(lambda: is_shown(stage, "held"), 0)
    assert "held" == (await handle.published())["stage"]


async def test_many_values_cost_few_commits(stage: Theatre) -> None:
    """A step that publishes all the time writes five times per second, and the last value."""

    @outlive.step
    async def fast() -> int:
        for number in range(300):
            await outlive.publish(progress=number)
            await asyncio.sleep(0.01)
        return 1

    @outlive.flow
    async def flow() -> int:
        return await fast()

    handle = await stage.open().start(flow, id="r")
    await stage.outcome(handle, 0.01)

    written = await stage.events("r", Published)
    assert 299 == (await handle.published())["progress"]
    assert len(written) <= 3 * 5 + 2


async def test_what_was_published_goes_with_the_next_commit(stage: Theatre) -> None:
    """No time has to pass where something else of the run is written."""

    @outlive.flow
    async def flow() -> int:
        await outlive.publish(stage="one")
        await work(7)
        await outlive.publish(stage="two")
        await outlive.wait_signal("go")
        return 1

    await stage.open().start(flow, id="r")
    await stage.status("r", "waiting", step=0)

    handle = await stage.open(drive=False).get("r")
    assert {"progress": 7, "stage": "two"} == await handle.published()


async def test_a_replay_publishes_nothing_again(theatre: Theatre) -> None:
    """A run cut anywhere goes on; what its journal has is not written a second time."""
    gate.open.set()
    app = theatre.open()
    await theatre.outcome(await app.start(busy, id="r"))
    events = await theatre.events("r")
    for cut in range(2, len(events)):
        driven = await drive_on(events[:cut], busy, run_id="r")
        assert ("returned", "through") == driven.outcome
        shown: dict[str, bytes] = {}
        for event in driven.events:
            if isinstance(event, Published):
                repeated = {
                    name for name, value in event.values.items() if shown.get(name) == value
                }
                assert not repeated
                fold_published(shown, event.values)
        steps = [event.step for event in driven.events if isinstance(event, StepDone)]
        assert ["0/work#1", "0/held#1"] == steps


async def test_tags_of_a_running_flow_are_found(theatre: Theatre) -> None:
    """The newest value of a tag finds the run, the one before does not."""
    app = theatre.open()
    handle = await app.start(tagged, id="r")
    assert [1, 2] == await theatre.outcome(handle)

    async def found(name: str, value: str) -> list[str]:
        return [each.head.run_id for each in (await app.find(tag=(name, value))).items]

    assert ["r"] == await found("team", "t2") == await found("city", "Rome")
    assert [] == await found("team", "t1") == await found("team", "a")
    events = await theatre.events("r")
    for cut in range(2, len(events)):
        driven = await drive_on(events[:cut], tagged, run_id="r")
        said = [event.tags for event in driven.events if isinstance(event, Tagged)]
        assert said.count({"team": "a", "city": "Rome"}) == 1
        assert said[-1] == {"team": "t2"}


@outlive.flow
async def chapters(number: int) -> int:
    await outlive.publish(chapter=number)
    await outlive.tag(chapter=str(number))
    if number < 3:
        await outlive.publish(seen=f"in {number}")
        await outlive.carry(number + 1)
    return number


async def test_published_values_and_tags_outlive_a_chapter(theatre: Theatre) -> None:
    """The next chapter begins with them; the records before it are not needed."""
    app = theatre.open()
    handle = await app.start(chapters, 1, id="r")
    assert 3 == await theatre.outcome(handle)

    assert {"seen": "in 2", "chapter": 3} == await handle.published()
    assert {"chapter": "3"} == (await app.find(tag=("chapter", "3"))).items[0].header.tags


async def test_a_fork_publishes_for_itself(theatre: Theatre) -> None:
    """It begins with nothing published, and with the tags as they were at its place."""
    gate.open.set()
    app = theatre.open()
    handle = await app.start(tagged, id="r")
    await theatre.outcome(handle)
    first = next(s for s, e in enumerate(await handle.read(), 1) if isinstance(e, StepDone))
    fork = await app.fork("r", at=first, id="f")
    assert {} == await fork.published()
    assert [1, 2] == await theatre.outcome(fork)

    assert {"progress": 2} == await fork.published()
    (found,) = (await app.find(tag=("team", "t2"), limit=1)).items
    assert {"team": "t2", "city": "Rome"} == found.header.tags


async def test_a_fork_that_is_replayed_publishes_nothing_again(theatre: Theatre) -> None:
    """What it did since it was forked is its own, and is not written twice."""
    app = theatre.open()
    await app.start(busy, id="r")
    await theatre.until(lambda: gate.begun == 2)
    await app.fork("r", at=2, id="f")
    await theatre.until(lambda: is_published(theatre, "f"))
    await theatre.crash(app)
    again = theatre.open()
    gate.open.set()
    assert "through" == await theatre.outcome(await again.start(busy, id="f"))

    stages = [event.values.get("stage") for event in await theatre.events("f", Published)]
    told = [stage for stage in stages if stage is not None]
    assert 1 == told.count(encode_own("begun"))
    assert encode_own("done") == told[-1]


async def is_published(theatre: Theatre, run_id: str) -> bool:
    return (await theatre.fold(run_id)).published.get("stage") == encode_own("held")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"text": "x" * PUBLISHED_BYTES_MAX}, "at most 1024"),
        ({"thing": object()}, "outlive.publish.thing=...."),
        ({"n" * 65: 1}, "a name has 1 to 64 characters"),
    ],
)
async def test_what_is_too_large_is_refused_by_name(
    stage: Theatre, values: dict[str, Any], said: str
) -> None:
    """In a flow as in a step, with the name and the limit."""

    @outlive.step
    async def step() -> None:
        await outlive.publish(**values)

    @outlive.flow
    async def flow(where: str) -> None:
        if where == "step":
            await step()
        await outlive.publish(**values)

    for where in ("flow", "step"):
        handle = await stage.open().start(flow, where, id=where)
        with pytest.raises(RunFailed, match=said):
            await stage.outcome(handle)


@pytest.mark.parametrize("tags", [{"a": 1}, {"fired_at": "now"}, {"a": "x" * 501}])
async def test_only_texts_are_tags(stage: Theatre, tags: dict[str, Any]) -> None:
    """What no store could index, or belongs to a schedule, is refused."""

    @outlive.flow
    async def flow() -> None:
        await outlive.tag(**tags)

    handle = await stage.open().start(flow, id="r")
    with pytest.raises(RunFailed, match="tag: "):
        await stage.outcome(handle)


async def test_of_too_many_names_the_oldest_are_dropped() -> None:
    """A run that publishes ever new names keeps the newest."""
    shown: dict[str, bytes] = {}
    for number in range(2 * PUBLISHED_NAMES_MAX):
        fold_published(shown, {f"n{number}": b""})

    assert PUBLISHED_NAMES_MAX == len(shown)
    assert "n0" not in shown


async def test_outside_a_run_there_is_nobody_to_show_it_to() -> None:
    """The error says where it belongs."""
    with pytest.raises(NotInRun):
        await outlive.publish(progress=1)
    with pytest.raises(NotInRun):
        sync.tag(team="a")


async def test_a_redacted_name_is_published_as_a_mark() -> None:
    """Neither what is named nor what matches a pattern reaches the store."""
    redaction = outlive.Redaction(names=("token",), patterns=(r"\d{4}-\d{4}",))
    async with outlive.open("memory://", redaction=redaction) as other:

        @outlive.flow
        async def flow() -> None:
            await outlive.publish(token="s3cret", card="1234-5678", fine="yes")

        handle = await other.start(flow, id="r")
        await handle
        said = await handle.published()

    assert "yes" == said["fine"]
    assert "s3cret" not in str(said)
    assert "1234" not in str(said)


def test_a_plain_flow_publishes_by_the_same_words() -> None:
    """``outlive.sync.publish`` in a plain flow and in a plain step."""

    @outlive.flow
    def flow() -> int:
        sync.publish(stage="plain")
        with pytest.raises(UsageError, match="must be awaited"):
            outlive.publish(stage="async")  # type: ignore[unused-coroutine]
        return plain(3)

    with sync.open("memory://") as app:
        handle = app.start(flow, id="r")
        assert 3 == handle.outcome()
        assert {"stage": "plain", "progress": 3} == handle.published()


async def test_lists_of_runs_show_what_was_published(theatre: Theatre) -> None:
    """From headers alone, as plain data; a long value is cut there and whole in the journal."""

    @outlive.flow
    async def flow() -> None:
        await outlive.publish(
            progress=0.4, stage="searching", at=datetime(2026, 1, 2, tzinfo=UTC), long="x" * 900
        )

    app = theatre.open()
    handle = await app.start(flow, id="r")
    await theatre.outcome(handle)

    (found,) = (await app.find()).items
    shown = summary(found)["published"]
    assert {"progress": 0.4, "stage": "searching", "at": "2026-01-02T00:00:00Z"} == {
        name: shown[name] for name in ("progress", "stage", "at")
    }
    assert len(shown["long"]) < 210
    assert 900 == len((await handle.published())["long"])


async def test_a_sealed_store_holds_no_word_of_it(tmp_path: Path) -> None:
    """Neither what is published or streamed nor a tag's value; reading it needs the key."""
    url, key, secret = f"sqlite:///{tmp_path}/o.db", new_key(os.urandom), "tell-nobody"

    @outlive.step
    async def speak() -> None:
        async with outlive.stream("tokens") as out:
            out.put(secret)

    @outlive.flow
    async def flow() -> None:
        await outlive.publish(stage=secret)
        await outlive.tag(team=secret)
        await speak()

    async with outlive.open(url, key=key) as app:
        handle = await app.start(flow, id="r")
        await handle
        assert {"stage": secret} == await handle.published()
        assert [secret] == [chunk.value async for chunk in handle.stream("tokens")]
        assert ["r"] == [run.head.run_id for run in (await app.find(tag=("team", secret))).items]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if secret.encode() in path.read_bytes()]
    with pytest.raises(OutliveError):
        async with outlive.open(url, key=new_key(os.urandom)) as app:
            await anext((await app.get("r")).stream("tokens"))
