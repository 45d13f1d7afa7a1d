"""What happens in the golden stores while they are written: a scene per process.

Some end in good order, so that their runs are parked; some are killed while their runs are held.
Runs are started, not worked on, so that nobody goes on with what another scene left.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import outlive
from outlive.app.app import App
from outlive.checkpoints import DurableRunner, SnapshotStore
from outlive.model.events import AttemptFailed
from tests.golden import flows
from tests.golden.flows import LONG, MANY, Errands, Here, obey_kill

Scene: TypeAlias = Callable[[App], Awaitable[None]]
KILLED = -signal.SIGKILL
PATIENCE_SECONDS = 30.0
#: Longer than its scene takes, and over when the store is opened again.
SHORT = "15s"
QUEUE = outlive.Queue("models", concurrency=1, per_key=1, rate=outlive.Rate(100, per="1m"))


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    late = time.monotonic() + PATIENCE_SECONDS
    while not await condition():
        assert time.monotonic() < late, f"waited for {what}"
        await asyncio.sleep(0.02)


async def until_status(app: App, *run_ids: str, status: str = "waiting") -> None:
    """All of these stand there, and nobody holds them unless they run."""
    for run_id in run_ids:

        async def stands(run_id: str = run_id) -> bool:
            page = await app.find(status=status, limit=1000)
            return any(
                each.head.run_id == run_id and (status == "running" or each.head.worker is None)
                for each in page.items
            )

        await until(stands, f"{run_id} to be {status}")


async def until_reached(*run_ids: str) -> None:
    """All of these hang where they are to hang."""

    async def there() -> bool:
        return Here.reached >= set(run_ids)

    await until(there, f"{run_ids} to hang")


# runs that wait, left in good order


async def wait_parked(app: App) -> None:
    """Everything that waits for somebody."""
    before = {each.head.run_id for each in (await app.find(limit=1000)).items}
    tagged = flows.listen.options(tags={"team": "a", "shop": "Köln"})
    await app.start(tagged, 1, id="signal-unread")
    for name in ("signal-json", "signal-large-json", "signal-none", "cancel-listen"):
        await app.start(flows.listen, 1, id=name)
    await app.start(flows.listen, 4, id="signal-many")
    await app.start(flows.measure, id="signal-large")
    for name in ("ask-open", "ask-answered"):
        await app.start(flows.inquire, None, id=name)
    for name in ("approve-open", "approve-yes", "approve-no"):
        await app.start(flows.permit, name, id=name)
    for name in ("cancel-undo", "travel-no", "travel-go"):
        await app.start(flows.travel, ["Rome", "Oslo"], id=name)
    await app.start(flows.chat, id="chat")
    await app.start(flows.nap, LONG, id="sleep-long")
    for name in ("chapter-open", "chapter-undo"):
        await app.start(flows.chapters, 0, [], id=name)
    for name in ("family-open", "family-news", "family-failed", "family-cancel"):
        await app.start(flows.parent, name, id=name)
    await app.start(flows.hoard, 0, id="chapter-kept")
    await app.start(flows.founder, "spawned", id="spawner")
    await app.start(flows.fan, ["fan-a", "fan-b"], id="fan")
    await app.start(flows.keep, MANY, id="values")
    await app.start(flows.aging, "patched", id="patched")
    await app.start(flows.plainly, "plain", id="plain")
    parents = ("family-open", "family-news", "family-failed", "family-cancel")
    children = [f"{name}-child" for name in (*parents, "spawned", "fan-a", "fan-b")]
    await until_status(app, *children)
    names = [each.head.run_id for each in (await app.find(limit=1000)).items]
    names = [name for name in names if name not in before]
    await until_status(app, *names)
    chat = await app.get("chat")
    assert await chat.request("message", "hello", id="hello") == "heard hello"
    for name in ("chapter-open", "chapter-undo"):
        handle = await app.get(name)
        await handle.signal("word", "first", id="first")
        await until_chapter(app, name, 2)
    hoard = await app.get("chapter-kept")
    await hoard.signal("spare", "kept")
    await hoard.signal("word", "first")
    await until_chapter(app, "chapter-kept", 1)
    # Read and not taken: the flow waits for another name.
    await (await app.get("signal-none")).signal("other", 7, id="other")
    await asyncio.sleep(0.3)
    await until_status(app, *names)


async def until_chapter(app: App, run_id: str, number: int) -> None:
    async def there() -> bool:
        chapter = (await (await app.get(run_id)).run()).chapter
        return chapter is not None and chapter.number == number

    await until(there, f"chapter {number} of {run_id}")


async def wait_shortly(app: App) -> None:
    """What has a time limit that will have passed."""
    await app.start(flows.inquire, SHORT, id="ask-late")
    await app.start(flows.inquire, SHORT, id="ask-in-time")
    await app.start(flows.nap, SHORT, id="sleep-short")
    await app.start(flows.nap.options(deadline=SHORT), LONG, id="deadline")
    await app.start(flows.impatient, SHORT, id="timeout")
    Here.unknown.add("retry-later")
    await app.start(flows.persist, id="retry-later")
    waiting = ("ask-late", "ask-in-time", "sleep-short", "deadline", "timeout")
    await until_status(app, *waiting)

    async def failed() -> bool:
        events = await (await app.get("retry-later")).read()
        return any(isinstance(event, AttemptFailed) for event in events)

    await until(failed, "an attempt to fail")


async def end(app: App) -> None:
    """Runs that are over."""
    await (await app.start(flows.buy, "named", "over", id="completed")).outcome()
    Here.unknown |= {"failed", "failed-retried", "failed-again"}
    for name in ("failed", "failed-retried", "failed-again"):
        handle = await app.start(flows.moody, id=name)
        try:
            await handle.outcome()
        except outlive.errors.RunFailed:
            continue
    await app.retry("failed-retried", by="ann")
    trip = await app.start(flows.travel, ["Lima"], id="cancelled")
    await until_status(app, "cancelled")
    await trip.cancel(by="ann")
    await until_status(app, "cancelled", status="cancelled")
    await (await app.start(flows.plan, "Rome", id="origin")).outcome()


async def fork(app: App) -> None:
    """Forks that nobody has driven yet."""
    await app.fork("origin", set={"think#1": "a better thought"}, id="fork-set")
    await app.fork("origin", at=5, id="fork-at")


async def forget(app: App) -> None:
    """A run that was archived and deleted, and what stays of it; there is no other one yet."""
    await (await app.start(flows.buy, "named", "forgotten", id="deleted")).outcome()
    archive = str(Here.ledger.parent / "archive")
    await app.retain(outlive.Retention(completed=0, id_window=LONG, archive=archive))
    assert not (await app.find(limit=1)).items


# runs that are held by a process that is killed


async def hold(app: App) -> None:
    """Effects between intent and outcome, an undo, a loop, a place in a queue, waits in memory."""
    hanging = {
        f"{how}-{place}": (how, place)
        for how in ("checked", "named", "asked", "retried", "doomed")
        for place in ("before", "after")
    }
    Here.hanging.update({name: place for name, (_, place) in hanging.items()})
    Here.hanging |= {"undoing": "undo Oslo", "loop-held": "after", "map": "after"}
    Here.hanging |= {"queued-held": "think", "key-holder": "after"}
    for name, (how, _) in hanging.items():
        await app.start(flows.buy, how, name, id=name)
    await app.start(flows.regret, ["Rome", "Oslo", "Lima"], id="undoing")
    await app.start(flows.many, ["a", "b", "c", "d", "e"], id="map")
    await app.start(flows.buy, "named", "shared", id="key-holder")
    await app.start(Errands.flow, ["retried", "think", "checked"], id="loop-held")
    await app.start(flows.answer.options(queue_key="ann"), "held", id="queued-held")
    for name in ("held-open", "held-signal", "held-cancel"):
        await app.start(flows.listen, 1, id=name)
    await app.start(flows.inquire, None, id="held-answer")
    await app.start(flows.parent, "held-family", id="held-family")
    await (await app.get("held-answer")).question(timeout="60s")
    await until_reached(*hanging, "undoing", "map", "key-holder", "loop-held", "queued-held")
    await app.start(flows.buy, "named", "shared", id="key-waiter")
    await asyncio.sleep(1.0)
    obey_kill()


async def doubt(app: App) -> None:
    """Effects whose receivers hung up: humans are asked, or a check that can't tell."""
    names = [f"doubt-{how}" for how in ("open", "happened", "not", "fail")]
    Here.breaking |= dict.fromkeys([*names, "doubt-unknown"], "after")
    Here.breaking["doubt-not"] = "before"
    Here.unknown.add("doubt-unknown")
    for name in names:
        await app.start(flows.buy, "asked", name, id=name)
    await app.start(flows.buy, "checked", "doubt-unknown", id="doubt-unknown")
    await until_status(app, *names, status="in_doubt")

    async def doubted() -> bool:
        run = await (await app.get("doubt-unknown")).run()
        return any(effect.doubt is not None for effect in run.effects.values())

    await until(doubted, "a check that can't tell")


async def finish_children(app: App) -> None:
    """Children end while nobody drives their parents, who are told by mail."""
    for name, word in (("family-news", "hi"), ("family-failed", "fail"), ("fan-a", "hi")):
        run_id = f"{name}-child"
        await (await app.get(run_id)).signal("word", word)
        handle = await app.resume(run_id, [flows.child])
        try:
            await handle.outcome(timeout="60s")
        except outlive.errors.RunFailed:
            assert word == "fail"


async def die_in_transaction(app: App) -> None:
    """The failpoint kills it."""
    await (await app.start(flows.record, "row-after", id="row-after")).outcome()


async def die_before_commit(app: App) -> None:
    await (await app.start(flows.record, "row-before", id="row-before")).outcome()


def dying(run_id: str) -> Scene:
    """A driver that is killed by what it drives."""

    async def die(app: App) -> None:
        Here.kill = obey_kill
        await (await app.start(flows.dangerous, id=run_id)).outcome()

    return die


async def quarantine(app: App) -> None:
    """Whoever drives it next leaves it alone."""
    for run_id in ("quarantined", "quarantined-freed"):
        handle = await app.start(flows.dangerous, id=run_id)
        try:
            await handle.outcome(timeout="60s")
        except outlive.errors.RunQuarantined:
            continue
        raise AssertionError("it was driven")
    await app.retry("quarantined-freed", by="ann")


# other faces


async def checkpoint(app: App) -> None:
    """Snapshots, one taken back; a run of ``auto`` whose process is killed; agents that talk."""
    runner = DurableRunner(SnapshotStore(app))
    state: dict[str, Any] = {"results": []}
    for number in range(4):
        state["results"].append(f"result {number} " * 40)
        await runner.checkpoint("plain", f"s{number}", state, {"n": number})
    await runner.rollback("plain", "s2", "s3 was wrong")
    await runner.fork("plain", "forked", at="s1")
    await runner.checkpoint("over", "only", {"n": 1})
    await runner.finish("over")
    await talk(runner)
    await runner.cut(["planner", "writer"], name="noon")

    add = flows.adder(runner)
    async with runner.auto("auto", {"sum": 0}) as run:
        await add(run.state, 1)
        await add(run.state, 2)
        obey_kill()


async def talk(runner: DurableRunner) -> None:
    """One message was taken, one is under way each way."""
    planner = await runner.exchange("planner", peers=["writer"])
    writer = await runner.exchange("writer", peers=["planner"])
    for chapter in (1, 2):
        planner.send("writer", {"chapter": chapter})
    await planner.checkpoint("planned", {"planned": 2})
    message = await writer.receive(timeout="20s")
    assert message is not None, "it was sent"
    writer.send("planner", f"text of chapter {message.body['chapter']}")
    await writer.checkpoint("wrote", {"count": 1})


# mail that nobody has read, and what nobody has begun


async def submit(app: App) -> None:
    """Runs that wait for their first driver, some of them in a queue that lets in one at a time."""
    await app.submit(flows.listen, 1, id="pending-signal")
    await app.submit(flows.travel, ["Rome"], id="pending-cancel")
    await app.submit("buy", "checked", "by name", id="pending-name", tags={"team": "a"})
    await app.submit(Errands.flow, ["think", "checked"], id="loop-pending")
    for number, key in enumerate(("ann", "ann", "bob", None)):
        options: dict[str, Any] = {"queue_key": key, "priority": -number, "units": 20}
        await app.submit(flows.answer, f"q{number}", id=f"queued-{number}", **options)


async def post(app: App) -> None:
    """Every kind of letter, to runs that are parked, held by the dead, or not begun."""
    signals: list[tuple[str, str, Any]] = [
        ("signal-unread", "go", {"word": "hello", "n": [1, 2.5, None, b"bytes"]}),
        ("signal-large", "go", [f"line {n} of a long letter" for n in range(MANY)]),
        ("held-signal", "go", "to the dead"),
        ("pending-signal", "go", "early"),
        ("travel-no", "go", False),
        ("travel-go", "go", True),
        ("chapter-open", "word", "second"),
        ("chapter-undo", "word", "wrong"),
        ("chapter-kept", "word", "second"),
        ("family-open-child", "word", "hi"),
        ("spawner", "go", None),
        ("values", "go", 7),
        ("patched", "go", None),
        ("chat", "message", "unread"),
        ("quarantined", "word", "kept"),
    ]
    for run_id, name, value in signals:
        assert await (await app.get(run_id)).signal(name, value, id=f"letter-{run_id}")
    await (await app.get("signal-json")).signal_json("go", b'{"from": "json"}', id="json")
    text = ('["' + "x" * 70_000 + '"]').encode()
    await (await app.get("signal-large-json")).signal_json("go", text)
    handle = await app.get("signal-many")
    for n in (1, 2, 1, 3):
        await handle.signal("go", n, id=f"number-{n}")
    await answer(app)
    for run_id in ("cancel-listen", "cancel-undo", "held-cancel", "pending-cancel"):
        await (await app.get(run_id)).cancel(by="ann")
    await (await app.get("family-cancel")).cancel(by="bob")
    await app.resolve("doubt-happened", "0/asked#1", "happened", b'"as a human says"')
    await app.resolve("doubt-not", "0/asked#1", "not_happened")
    await app.resolve("doubt-fail", "0/asked#1", "fail")
    await app.nudge("signal-none", "to be read for nothing")


async def answer(app: App) -> None:
    """What humans say."""
    for run_id, value in (("ask-answered", 5), ("held-answer", 6)):
        await (await app.get(run_id)).answer(value, by="ann")
    await (await app.get("approve-yes")).answer(True, by="bea")
    await (await app.get("approve-no")).answer({"granted": False, "note": "too dear"}, by="bea")


async def answer_in_time(app: App) -> None:
    await (await app.get("ask-in-time")).answer(9, by="ann")


async def schedule(app: App) -> None:
    """One that will have been missed, one that is paused by a wish that nobody has heard."""
    await app.schedule("minutely", flows.tick, "Berlin", every="1m", missed="once")
    await app.schedule("paused", flows.tick, "Cairo", cron="* * * * *")
    await app.pause_schedule("paused")
    await app.schedule("changed", flows.tick, "Oslo", cron="0 3 * * *", tz="Europe/Oslo")
    await app.schedule("changed", flows.tick, "Oslo", cron="0 4 * * *", tz="Europe/Oslo")
    obey_kill()  # so that SQLite's log is not empty


async def limit(app: App) -> None:
    await app.set_queue(QUEUE)


#: Each with how its process is set, and how it must end. A store that is mixed has a key only from
#: the scene ``checkpoint`` on: what was begun before stays as it is, and gets mail all the same.
SEALED_FROM = checkpoint
SCENES: list[tuple[Scene, dict[str, Any], int]] = [
    (limit, {}, 0),
    (forget, {}, 0),
    (end, {}, 0),
    (fork, {}, 0),
    (wait_parked, {}, 0),
    (finish_children, {}, 0),
    (die_in_transaction, {"dies_at": "transaction.after"}, KILLED),
    (die_before_commit, {"dies_at": "transaction.before"}, KILLED),
    *((dying("quarantined"), {}, KILLED) for _ in range(5)),
    *((dying("quarantined-freed"), {}, KILLED) for _ in range(5)),
    (quarantine, {}, 0),
    (checkpoint, {}, KILLED),
    (doubt, {}, 0),
    (hold, {"idle": 600.0}, KILLED),
    (submit, {}, 0),
    (post, {}, 0),
    (wait_shortly, {}, 0),
    (answer_in_time, {}, 0),
    (schedule, {}, KILLED),
]
