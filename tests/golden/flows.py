"""The flows whose runs are in the golden stores, and the ledger that their effects write to.

The same code wrote the stores, with an older release, and goes on with them: never change what a
flow does, only add flows. A process that writes them is told where each run stops (``Here``).
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import outlive
from outlive import sync
from outlive.checkpoints import DurableRunner
from outlive.loop import Loop, State, arrange

#: Not a secret: it opens nothing but these stores.
KEY = "Z29sZGVuLWdvbGRlbi1nb2xkZW4tZ29sZGVuLWdvbGQ="
#: Whoever writes the stores lets effects hang; where a death is not certain, whoever goes on with
#: them waits for as long as this before an absence is believed.
TIMEOUT = "GOLDEN_TIMEOUT"
LIMITS: dict[str, Any] = {"timeout": os.environ.get(TIMEOUT, "2s"), "settle_after": "100ms"}
#: For ever, as far as a store is concerned that is opened years later.
LONG = "30000d"
MANY = 3000


class Here:
    """What this process was told."""

    ledger = Path("ledger.txt")
    #: Runs that go no further than such a place in a body: "before" or "after" it did its thing.
    hanging: ClassVar[dict[str, str]] = {}
    #: Runs that are there now.
    reached: ClassVar[set[str]] = set()
    #: Runs whose receivers break the connection, "before" or "after" the fact.
    breaking: ClassVar[dict[str, str]] = {}
    #: Runs whose checks can't tell, and whose steps fail.
    unknown: ClassVar[set[str]] = set()
    #: What is called where a body is to kill its process.
    kill: Callable[[], None] | None = None


async def pass_by(place: str) -> None:
    """Hang here, if this run is to hang here."""
    run_id = outlive.run_id()
    if Here.hanging.get(run_id) == place:
        Here.reached.add(run_id)
        await asyncio.Event().wait()


# the world outside: a line per thing that happened


def happened() -> list[list[str]]:
    """Run, effect, item and key of all that happened."""
    text = Here.ledger.read_text() if Here.ledger.exists() else ""
    return [line.split("\t") for line in text.splitlines()]


def counted(run_id: str) -> dict[str, int]:
    """What happened for a run, how often."""
    return dict(Counter(f"{effect} {item}" for run, effect, item, _ in happened() if run == run_id))


def enter(effect: str, item: str, key: str) -> str:
    """It happens."""
    with Here.ledger.open("a") as file:
        file.write(f"{outlive.run_id()}\t{effect}\t{item}\t{key}\n")
    return f"{effect} {item}"


def find(key: str) -> object:
    """What became of it, by its key."""
    if outlive.run_id() in Here.unknown:
        return outlive.UNKNOWN
    found = [f"{effect} {item}" for _, effect, item, known in happened() if known == key]
    return found[0] if found else outlive.NOT_HAPPENED


async def perform(effect: str, item: str, *, honours_key: bool = False) -> str:
    """Ask the receiver for something."""
    await pass_by("before")
    break_off("before")
    known = [line for line in happened() if line[3] == outlive.key()] if honours_key else []
    done = f"{effect} {item}" if known else enter(effect, item, outlive.key())
    await pass_by("after")
    break_off("after")
    return done


def break_off(place: str) -> None:
    """Lose the connection here, if this run is to lose it here."""
    if Here.breaking.get(outlive.run_id()) == place:
        raise ConnectionResetError("the receiver hung up")


@outlive.effect(check=find, **LIMITS)
async def checked(item: str) -> str:
    return await perform("checked", item)


@outlive.effect(key="named:{item}", check=find, **LIMITS)
async def named(item: str) -> str:
    return await perform("named", item)


@outlive.effect(settle_after="100ms")
async def asked(item: str) -> str:
    return await perform("asked", item)


@outlive.effect(doubt="retry", **LIMITS)
async def retried(item: str) -> str:
    return await perform("retried", item, honours_key=True)


@outlive.effect(doubt="fail", settle_after="100ms")
async def doomed(item: str) -> str:
    return await perform("doomed", item)


async def unbook(item: str, key: str) -> None:
    """An undo may be repeated: only the first one counts."""
    await pass_by(f"undo {item}")
    if not any(line[1] == "unbook" and line[3] == key for line in happened()):
        enter("unbook", item, key)


@outlive.effect(check=find, undo=unbook, **LIMITS)
async def book(item: str) -> str:
    return await perform("book", item)


@outlive.step
async def think(topic: str) -> str:
    await pass_by("think")
    return f"thought of {topic}"


@outlive.step(retry=outlive.Retry(attempts=4, delay="15s", jitter=False))
async def flaky(topic: str) -> str:
    if outlive.run_id() in Here.unknown:
        raise OSError("not now")
    return f"{topic} at attempt {outlive.attempt()}"


@outlive.step
async def deadly(topic: str) -> str:
    if Here.kill is not None:
        Here.kill()
    return f"survived {topic}"


@outlive.step
async def large(count: int) -> list[str]:
    return [f"part {number} of a large value" for number in range(count)]


@outlive.step
async def heap(size: int) -> outlive.Blob:
    return await outlive.Blob.of(bytes(number % 251 for number in range(size)))


@outlive.step
async def weigh(blob: outlive.Blob) -> int:
    return sum([sum(chunk) async for chunk in blob.chunks()])


@outlive.step(transaction=True)
async def write_row(connection: Any, what: str) -> str:
    done = connection.execute(f"INSERT INTO bookings VALUES ('{what}')")
    if asyncio.iscoroutine(done):
        await done
    return f"wrote {what}"


EFFECTS = {
    "checked": checked,
    "named": named,
    "asked": asked,
    "retried": retried,
    "doomed": doomed,
}

# flows


@outlive.flow
async def buy(how: str, item: str) -> str:
    thought = await think(item)
    try:
        return f"{thought}; {await EFFECTS[how](item)}"
    except outlive.errors.InDoubt:
        return f"{thought}; nobody knows"


@outlive.flow
async def listen(count: int) -> list[Any]:
    await think("listening")
    return [await outlive.wait_signal("go") for _ in range(count)]


@outlive.flow
async def measure() -> int:
    heard = await outlive.wait_signal("go", type=list[str])
    return len(heard)


@outlive.flow
async def inquire(within: str | None) -> str:
    try:
        number = await outlive.ask("How many?", type=int, within=within)
    except outlive.errors.TimedOut:
        return "nobody answered"
    return f"{number}: {await checked(str(number))}"


@outlive.flow
async def permit(item: str) -> str:
    approval = await outlive.approve(checked, item, by="ann")
    if not approval.granted:
        return f"{approval.by} said no: {approval.note}"
    return f"{approval.by} said yes: {await checked(item)}"


@outlive.flow
async def travel(places: list[str]) -> list[str]:
    """Every booking is undone if the last signal is not "go"."""
    booked = [await book(place) for place in places]
    if await outlive.wait_signal("go", type=bool):
        return booked
    raise ValueError("nobody wants to go")


@outlive.flow
async def regret(places: list[str]) -> None:
    for place in places:
        await book(place)
    raise ValueError("it was wrong")


@outlive.flow
async def chat() -> list[str]:
    said: list[str] = []
    async for request in outlive.requests("message", type=str):
        said.append(await think(request.value))
        await request.reply(f"heard {request.value}")
        if request.value == "bye":
            break
    return said


@outlive.flow
async def nap(duration: str) -> str:
    await outlive.sleep(duration)
    return await checked("morning")


@outlive.flow
async def impatient(duration: str) -> str:
    try:
        async with outlive.timeout(duration):
            await outlive.wait_signal("never")
    except outlive.errors.TimedOut:
        return await checked("without")
    return "there was one"


@outlive.flow
async def persist() -> str:
    return await flaky("it")


@outlive.flow
async def chapters(number: int, heard: list[str]) -> list[str]:
    """Three chapters; the second and third wait for a word, the first two book something."""
    if number < 2:
        await book(f"chapter {number}")
    if number:
        heard = [*heard, await outlive.wait_signal("word", type=str)]
    if number == 2:
        if heard[-1] == "wrong":
            raise ValueError("a wrong word")
        return heard
    return await outlive.carry(number + 1, heard)


@outlive.flow
async def hoard(number: int) -> str:
    """What was sent to the first chapter and not taken goes along."""
    word = await outlive.wait_signal("word", type=str)
    if number == 0:
        await outlive.carry(1)
    return f"{word}, {await outlive.wait_signal('spare', type=str)}"


@outlive.flow
async def child(name: str) -> str:
    word = await outlive.wait_signal("word", type=str)
    if word == "fail":
        raise ValueError(f"{name} failed")
    return f"{name} heard {word}: {await checked(name)}"


@outlive.flow
async def parent(name: str) -> str:
    try:
        told = await outlive.call(child, name, id=f"{name}-child")
    except outlive.errors.RunFailed as failed:
        told = f"failed: {failed.message}"
    return f"{told}; {await checked('parent')}"


@outlive.flow
async def founder(name: str) -> str:
    spawned = await outlive.spawn(child, name, id=f"{name}-child")
    await outlive.wait_signal("go")
    return f"spawned {spawned}"


@outlive.flow
async def many(items: list[str]) -> list[str]:
    outcomes = await outlive.map(retried, items, limit=2)
    return [outcome.value for outcome in outcomes]


@outlive.flow
async def fan(names: list[str]) -> list[str]:
    return sorted(await asyncio.gather(*(outlive.call(child, n, id=f"{n}-child") for n in names)))


@outlive.flow
async def record(name: str) -> list[str]:
    return [await write_row(f"{name}/{part}") for part in ("one", "two", "three")]


@outlive.flow
async def keep(count: int) -> list[int]:
    values, blob = await large(count), await heap(count * 30)
    word = await outlive.wait_signal("go", type=int)
    return [len(values), blob.size, await weigh(blob), word]


@outlive.flow
async def plan(city: str) -> list[str]:
    thought = await think(city)
    return [await retried(f"hotel after {thought}"), await retried(f"train after {thought}")]


@outlive.flow
async def dangerous() -> str:
    return await deadly("it")


@outlive.flow
async def moody() -> str:
    """Fails while its receiver can't tell, then not."""
    thought = await think("moods")
    if outlive.run_id() in Here.unknown:
        raise ValueError("a bad mood")
    return f"{thought}; {await checked('mood')}"


@outlive.flow(queue="models")
async def answer(question: str) -> str:
    return await think(question)


@outlive.flow
async def tick(shop: str) -> str:
    return await think(shop)


@outlive.flow(version="2", accepts=("1",))
async def aging(item: str) -> str:
    new = outlive.patched("shorter")
    await outlive.wait_signal("go")
    return f"{'new' if new else 'old'}: {await checked(item)}"


@outlive.flow
def plainly(item: str) -> str:
    """Plain code: nothing is awaited."""
    number = sync.ask("How many?", type=int)
    return f"{number}: {call_plainly(checked, item)}"


def call_plainly(effect: Any, *args: Any) -> Any:
    """In plain code an async effect is called like any other; type checkers do not know."""
    return effect(*args)


TOOLS: dict[str, Any] = {"think": think, "retried": retried, "checked": checked}


class Errands(Loop):
    """Plans, does one thing after the other, and keeps what it found."""

    keep = None

    async def on_planning(self) -> State:
        self.context["thought"] = await think("a plan")
        self.plan = arrange(self.request, lambda name: TOOLS[name]).plan
        return State.EXECUTING

    async def on_executing(self) -> State:
        self.heard = await TOOLS[self.current](f"errand {self.cursor}")
        return State.OBSERVING

    async def on_observing(self) -> State:
        self.results.append(self.heard)
        self.cursor += 1
        return State.REFLECTING

    async def on_reflecting(self) -> State:
        return State.COMPLETE if self.current is None else State.EXECUTING


FLOWS: list[Any] = [
    buy, listen, measure, inquire, permit, travel, regret, chat, nap, impatient, persist, chapters,
    hoard, child, parent, founder, many, fan, record, keep, plan, dangerous, moody, answer, tick,
    aging, plainly, Errands.flow,
]  # fmt: skip


def adder(runner: DurableRunner) -> Any:
    """A step of an automatic run, whose calls are counted by the ledger."""

    @runner.step
    async def add(state: dict[str, Any], number: int) -> int:
        with Here.ledger.open("a") as ledger:
            ledger.write(f"auto\tadd\t{number}\t\n")
        state["sum"] += number
        return int(state["sum"])

    return add


def settings_environment() -> dict[str, str]:
    """How processes are set that share a golden store."""
    quick = {"LEASE_SECONDS": "1", "POLL_SECONDS": "0.05", "IDLE_SECONDS": "0"}
    return {f"OUTLIVE_{name}": value for name, value in quick.items()}


def obey_kill() -> None:
    """Die here, as by a power cut."""
    os.kill(os.getpid(), 9)
