"""Simulated flows: random programs of steps, effects, waits, children and undo.

Some nodes of a program wait for mail or for children, and some effects can be undone. Received
values are part of a flow's outcome (``Story.heard``), so that the judge can check that every
signal arrived, once and in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import outlive
from outlive.engine import people
from outlive.engine import verbs as fanout
from outlive.testing.audit.auditor import Policy
from outlive.testing.simulation.world import (
    LIMIT_SECONDS,
    SETTLE_SECONDS,
    THINK_SECONDS,
    BankError,
    BankRefused,
    BankRequest,
    current_world,
)

#: Names of signals and requests.
SIGNALS, MESSAGE = ("s", "t"), "m"

Node: TypeAlias = list[Any]
Paid: TypeAlias = dict[str, str]

#: Long enough to be stored separately, and a few of them for a list to have a long form.
NOTE_CHARS = 600
NOTE_TITLE = "a title that is short enough to stand where it is, and long enough to count " * 3

_RETRY = outlive.Retry(attempts=3, delay="200ms", factor=2)


@outlive.step(retry=_RETRY, timeout=THINK_SECONDS)
async def think(how: str) -> dict[str, str]:
    """A model call, which streams and publishes."""
    async with outlive.stream("tokens") as out:
        out.put("thinking")
        thought = await current_world().think(how)
        out.put(thought["nonce"])
    await outlive.publish(thought=thought["nonce"])
    return thought


@outlive.step(retry=_RETRY)
def ponder(how: str) -> dict[str, str]:
    """A model call by a plain function."""
    return current_world().think_plainly(how)


@outlive.step(retry=_RETRY)
async def note_down(notes: list[dict[str, str]]) -> str:
    """Is given everything that was noted, and returns a text that stands by itself."""
    nonce = current_world().think_plainly("ok")["nonce"]
    return f"{nonce} {'…' * NOTE_CHARS}"


@outlive.step
async def recall() -> list[str]:
    """Return an object that its owner keeps, and that nobody else may change."""
    return current_world().memory


async def find_payment(key: str) -> Any:
    """Ask the bank by key."""
    return await current_world().find(key)


def look_up_payment(key: str) -> Any:
    """Ask the bank by key, from a plain function."""
    return current_world().find_plainly(key)


def _request(effect: str, order: str, note: str, *, honours_key: bool = False) -> BankRequest:
    return BankRequest(
        run_id=outlive.run_id(),
        effect=effect,
        key=outlive.key(),
        order=order,
        note=note,
        honours_key=honours_key,
    )


_DECLARED: dict[str, Any] = {
    "not_happened": (BankRefused,),
    "raises": (BankError,),
    "timeout": LIMIT_SECONDS,
    "settle_after": SETTLE_SECONDS,
}


@outlive.effect(doubt="retry", retry=_RETRY, **_DECLARED)
async def pay_honoured(order: str, note: str) -> Paid:
    """The bank honours the key."""
    request = _request("pay_honoured", order, note, honours_key=True)
    return await current_world().pay(request, dawdles=True)


@outlive.effect(check=find_payment, retry=_RETRY, **_DECLARED)
async def pay_checked(order: str, note: str) -> Paid:
    """The bank can be asked."""
    return await current_world().pay(_request("pay_checked", order, note), dawdles=False)


@outlive.effect(check=look_up_payment, **_DECLARED)
def wire_checked(order: str, note: str) -> Paid:
    """The bank can be asked; plain functions."""
    return current_world().pay_plainly(_request("wire_checked", order, note))


@outlive.effect(retry=_RETRY, **_DECLARED)
async def pay_asked(order: str, note: str) -> Paid:
    """Only a human can tell."""
    return await current_world().pay(_request("pay_asked", order, note), dawdles=True)


@outlive.effect(doubt="fail", retry=_RETRY, **_DECLARED)
async def pay_failing(order: str, note: str) -> Paid:
    """Nobody is asked."""
    return await current_world().pay(_request("pay_failing", order, note), dawdles=True)


@outlive.effect(key="order:{order}", check=find_payment, retry=_RETRY, **_DECLARED)
async def order_checked(order: str, note: str) -> Paid:
    """A key of the user's, held store-wide; the bank can be asked."""
    return await current_world().pay(_request("order_checked", order, note), dawdles=False)


@outlive.effect(key="order:{order}", **_DECLARED)
def order_asked(order: str, note: str) -> Paid:
    """A key of the user's, held store-wide; only a human can tell."""
    return current_world().pay_plainly(_request("order_asked", order, note))


# effects that can be undone


async def give_back(order: str, key: str, outcome: dict[str, str]) -> None:
    """A plain function: the engine repeats it under its own key, which the bank honours."""
    current_world().check_paid(key, outcome)
    await current_world().pay(_request("give_back", order, "", honours_key=True), dawdles=False)


@outlive.effect(check=find_payment, retry=outlive.Retry(attempts=20, delay="200ms"), **_DECLARED)
async def call_off(order: str) -> dict[str, str]:
    """An undo that is an effect of its own: the bank can be asked whether it happened."""
    return await current_world().pay(_request("call_off", order, ""), dawdles=False)


@outlive.effect(check=find_payment, undo=give_back, retry=_RETRY, **_DECLARED)
async def rent(order: str, note: str) -> dict[str, str]:
    """Can be asked about and given back."""
    return await current_world().pay(_request("rent", order, note), dawdles=False)


@outlive.effect(doubt="retry", undo=call_off, retry=_RETRY, **_DECLARED)
async def hire(order: str, note: str) -> dict[str, str]:
    """The bank honours the key; can be called off."""
    request = _request("hire", order, note, honours_key=True)
    return await current_world().pay(request, dawdles=True)


@outlive.effect(undo=give_back, retry=_RETRY, **_DECLARED)
async def borrow(order: str, note: str) -> dict[str, str]:
    """Only a human can tell whether it happened; can be given back."""
    return await current_world().pay(_request("borrow", order, note), dawdles=True)


@outlive.effect(check=find_payment, retry=_RETRY, **_DECLARED)
async def pay_one(item: list[str]) -> dict[str, str]:
    """One of many."""
    order, note = item
    return await current_world().pay(_request("pay_one", order, note), dawdles=False)


UNDONE = (rent, hire, borrow)

EFFECTS = {
    effect.definition.name: effect
    for effect in (
        pay_honoured, pay_checked, wire_checked, pay_asked, pay_failing, order_checked, order_asked,
        *UNDONE
    )
}  # fmt: skip

#: The promise that may be made of each.
POLICIES: dict[str, Policy] = {
    "pay_honoured": "once",
    "pay_checked": "once",
    "wire_checked": "once",
    "pay_asked": "at_most_once",
    "pay_failing": "at_most_once",
    "order_checked": "once",
    "order_asked": "at_most_once",
    "rent": "once",
    "hire": "once",
    "borrow": "at_most_once",
    "give_back": "once",
    "call_off": "once",
    "pay_one": "once",
}
#: Effects that are undone when their run ends badly.
UNDOABLE = frozenset(effect.definition.name for effect in UNDONE)

# ---------------------------------------------------------------- the interpreter


class Story:
    """One run of a program: the nonces that its branches have seen so far."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.heard: list[list[str]] = []
        self.notes: list[dict[str, str]] = []
        #: False: branches of an earlier chapter may have heard more.
        self.heard_all = True

    async def tell(self, node: Node) -> Any:
        """Carry out one node."""
        return await _TELLERS[node[0]](self, *node[1:])

    async def each(self, nodes: list[Node]) -> list[Any]:
        """One after the other."""
        return [await self.tell(node) for node in nodes]


async def _step(story: Story, name: str, how: str) -> str:
    step: Any = think if name == "think" else ponder
    nonce: str = (await step(how))["nonce"]
    story.seen.append(nonce)
    return nonce


async def _notes(story: Story, count: int, kept: int) -> int:
    """A list that grows, and of which only the newest are kept."""
    for _ in range(count):
        text = await note_down(story.notes)
        story.notes = [*story.notes[-kept:], {"title": NOTE_TITLE, "text": text}]
    return len(story.notes)


async def _recall(story: Story) -> int:
    first, second = await recall(), await recall()
    second.append("a flow wrote this")
    return len(first)


async def _effect(story: Story, name: str, order: str, shared: bool) -> Any:
    # Two runs that share a key must ask for the same thing to share its outcome.
    note = "shared" if shared else story.seen[-1] if story.seen else "nothing yet"
    effect: Any = EFFECTS[name]
    paid = await effect(order, note)
    story.seen.append(paid["nonce"])
    return paid


async def _sleep(story: Story, seconds: float) -> str:
    await outlive.sleep(seconds)
    return "slept"


async def _nap(story: Story, seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "napped"


async def _draw(story: Story) -> list[str]:
    return [str(outlive.random()), str(outlive.uuid()), outlive.now().isoformat()]


async def _fail(story: Story) -> None:
    raise ValueError(f"given up after {len(story.seen)} thoughts")


async def _all(story: Story, nodes: list[Node]) -> list[Any]:
    return await story.each(nodes)


async def _gather(story: Story, nodes: list[Node]) -> list[Any]:
    told = await asyncio.gather(*(story.tell(node) for node in nodes), return_exceptions=True)
    return [f"{type(one).__name__}" if isinstance(one, BaseException) else one for one in told]


async def _group(story: Story, nodes: list[Node]) -> list[Any]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(story.tell(node)) for node in nodes]
    return [task.result() for task in tasks]


async def _first(story: Story, nodes: list[Node], cancels: bool) -> list[Any]:
    tasks = [asyncio.create_task(story.tell(node)) for node in nodes]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    first = [number for number, task in enumerate(tasks) if task in done]
    if cancels:
        for task in tasks:
            if task in pending:
                task.cancel()
    rest = await asyncio.gather(*tasks, return_exceptions=True)
    return [first, [type(one).__name__ for one in rest]]


async def _as_completed(story: Story, nodes: list[Node]) -> list[Any]:
    told = []
    for coming in asyncio.as_completed([story.tell(node) for node in nodes]):
        try:
            told.append(await coming)
        except Exception as error:
            told.append(type(error).__name__)
    return told


async def _queue(story: Story, nodes: list[Node]) -> list[Any]:
    queue: asyncio.Queue[Any] = asyncio.Queue(2)

    async def produce(node: Node) -> None:
        try:
            await queue.put(await story.tell(node))
        except Exception as error:
            await queue.put(type(error).__name__)

    producers = [asyncio.create_task(produce(node)) for node in nodes]
    told = []
    for _ in nodes:
        told.append([await queue.get(), len(story.seen)])
    await asyncio.gather(*producers)
    return told


async def _timeout(story: Story, seconds: float, node: Node) -> Any:
    try:
        async with asyncio.timeout(seconds):
            return await story.tell(node)
    except TimeoutError:
        return "timed out"


async def _wait_for(story: Story, seconds: float, node: Node) -> Any:
    try:
        return await asyncio.wait_for(story.tell(node), seconds)
    except TimeoutError:
        return "timed out"


async def _try(story: Story, node: Node) -> Any:
    try:
        return await story.tell(node)
    except Exception as error:
        return [type(error).__name__, str(error)]


async def _carry(story: Story, program: list[Node], is_alone: bool) -> Any:
    """Start the next chapter; branches beside this one may hear more meanwhile."""
    await outlive.carry(program, story.heard, is_alone and story.heard_all)


async def _patched(story: Story, name: str, node: Node) -> Any:
    return await story.tell(node) if outlive.patched(name) else "the old way"


async def _call(story: Story, program: list[Node]) -> Any:
    return await fanout.call(tell_story, program)


async def _spawn(story: Story, program: list[Node]) -> Any:
    return await fanout.spawn(tell_story, program)


async def _map_flows(story: Story, programs: list[list[Node]], room: int) -> list[Any]:
    return outcomes(await fanout.map(tell_story, programs, limit=room))


async def _map_steps(story: Story, hows: list[str], room: int) -> list[Any]:
    return outcomes(await fanout.map(think, hows, limit=room))


# people and programs


async def signal(story: Story, name: str, within: float | None) -> str:
    """The next signal of a name."""
    said: str = await people.wait_signal(name, str, within)
    story.heard.append([name, said])
    return said


async def ask(story: Story, text: str, within: float | None) -> str:
    """A human's answer."""
    said: str = await people.ask(text, type=str, within=within)
    return said


async def approve(story: Story, order: str, within: float | None) -> Any:
    """A human's word on one effect with these arguments, and then that effect."""
    note = story.seen[-1] if story.seen else "nothing yet"
    approval = await people.approve(rent, order, note, within=within)
    if not approval.granted:
        return ["refused", approval.by]
    paid = await rent(order, note)
    story.seen.append(paid["nonce"])
    return [approval.by, paid]


async def requests(story: Story, count: int, idle: float | None, node: list[Any]) -> list[str]:
    """Messages, each replied to after some work, until so many came or none for a while."""
    told: list[str] = []
    async for request in people.requests(MESSAGE, type=str, idle=idle):
        story.heard.append([MESSAGE, request.value])
        await story.tell(node)
        await request.reply(f"you said {request.value}")
        told.append(request.value)
        if len(told) == count:
            break
    return told


async def limit(story: Story, seconds: float, node: list[Any]) -> Any:
    """A time limit that survives restarts."""
    try:
        async with people.timeout(seconds):
            return await story.tell(node)
    except outlive.errors.TimedOut:
        return "timed out"


# many at once


async def map_effects(story: Story, orders: list[str], room: int) -> list[Any]:
    """An effect per order, some at a time."""
    note = story.seen[-1] if story.seen else "nothing yet"
    return outcomes(await fanout.map(pay_one, [[order, note] for order in orders], limit=room))


def outcomes(told: list[fanout.Outcome[Any]]) -> list[Any]:
    """The outcomes, as values that a journal takes."""
    return [each.value if each.ok else type(each.error).__name__ for each in told]


_TELLERS: dict[str, Callable[..., Awaitable[Any]]] = {
    "step": _step,
    "recall": _recall,
    "notes": _notes,
    "effect": _effect,
    "sleep": _sleep,
    "nap": _nap,
    "draw": _draw,
    "fail": _fail,
    "all": _all,
    "gather": _gather,
    "group": _group,
    "first": _first,
    "as_completed": _as_completed,
    "queue": _queue,
    "timeout": _timeout,
    "wait_for": _wait_for,
    "try": _try,
    "signal": signal,
    "ask": ask,
    "approve": approve,
    "requests": requests,
    "limit": limit,
    "call": _call,
    "spawn": _spawn,
    "map_steps": _map_steps,
    "map_effects": map_effects,
    "map_flows": _map_flows,
    "carry": _carry,
    "patched": _patched,
}


@outlive.flow(name="story")
async def tell_story(
    program: list[Any], heard: list[list[str]] | None = None, heard_all: bool = True
) -> list[Any]:
    """Carry out a program and return its results; ``heard`` is from earlier chapters."""
    story = Story()
    story.heard += heard or []
    story.heard_all = heard_all
    async with outlive.stream("story") as out:
        out.put("begun")
        await outlive.publish(stage="begun")
        await outlive.tag(stage="begun")
        told = await story.each(program)
        out.put("told")
        await outlive.publish(stage="told")
        await outlive.tag(stage="told")
    return [told, story.seen, story.heard if story.heard_all else None]
