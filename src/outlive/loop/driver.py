"""Driving a loop: to its end, or one transition; and continuing one that was left.

A loop lives in a store (a URL or an app): there it is a run, with a journal, a lease and keys. Or
in an object that saves and loads snapshots: there it is only as durable as that object, and
effects, which need a journal, are refused.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from enum import Enum
from typing import Any, Protocol, TypeAlias, TypeGuard, TypeVar, runtime_checkable

from outlive.app.app import App
from outlive.app.open import open_app
from outlive.app.start import start_of
from outlive.engine.place import refuse_in_run
from outlive.errors import (
    FlowNotRegistered,
    IncompatibleCheckpoint,
    RunIdTaken,
    RunNotFound,
    UsageError,
    WrongVersion,
)
from outlive.journal.reader import read_first
from outlive.loop.loop import (
    BEFORE_WORK,
    MADE,
    NOTES,
    UNAWAITED,
    CheckpointCadence,
    Loop,
    asked,
    defined,
    given,
    goes_at_once,
    the_only,
    turn,
)
from outlive.loop.snapshot import PARTS, RECORDED, Snapshot
from outlive.model.events import ChapterBegan
from outlive.model.ids import check_run_id
from outlive.stores.types import LAST_CHAPTER, PAGE_MAX, Found, Header

L = TypeVar("L", bound=Loop)

IN_A_RUN = "call its flow from yours: await outlive.call(YourLoop.flow, request)"


@runtime_checkable
class LoopStore(Protocol):
    """An object that keeps one snapshot, plain or async; ``delete()`` is optional."""

    def save(self, snapshot: Any) -> Any:
        """Replace the kept snapshot, completely or not at all."""
        ...

    def load(self) -> Any:
        """Return the last snapshot; None if there is none."""
        ...


Where: TypeAlias = App | LoopStore | str | None
Kinds: TypeAlias = Mapping[str, type[Loop]]


# transitions in memory


async def step_once(loop: Loop) -> None:
    """Make one transition; if it fails, restore the loop."""
    own, state = vars(loop), loop.state
    own.pop(UNAWAITED, None)
    if MADE not in own:
        own[MADE] = _copied(_beside(own))
    before = _copied(own)
    try:
        await turn(loop)
    except BaseException:
        own.clear()
        own.update(before)
        raise
    _note_work(loop, state, before)


def _note_work(loop: Loop, state: Enum, before: Mapping[str, Any]) -> None:
    """Keep the snapshot from before the work, if a snapshot taken now would lack some of it."""
    own = vars(loop)
    if state not in loop.machine.working or _is_as_made(own):
        own.pop(BEFORE_WORK, None)
    elif BEFORE_WORK not in own:
        parts = {name: before[name] for name in RECORDED}
        own[BEFORE_WORK] = Snapshot(
            version=loop.version, id=loop.id, **{**parts, "state": before["state"].name}
        )


def _beside(own: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of a loop beside its parts."""
    return {name: each for name, each in own.items() if name not in (*PARTS, *NOTES)}


def _is_as_made(own: Mapping[str, Any]) -> bool:
    """Whether the attributes beside its parts are those that ``setup`` makes."""
    made, beside = own[MADE], _beside(own)
    if made.keys() != beside.keys():
        return False
    try:
        return all(each is made[name] or bool(each == made[name]) for name, each in beside.items())
    except Exception:  # whatever a class of theirs raises when it is compared
        return False


def _copied(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of all attributes, to be restored; a client or a lock is shared, not copied."""
    things = {
        id(each): each
        for name, each in attributes.items()
        if name not in RECORDED and not _is_value(each)
    }
    try:
        return copy.deepcopy(dict(attributes), things)
    except Exception:  # whatever a class of theirs raises; no snapshot has such a part
        return dict(attributes)


def _is_value(attribute: object) -> bool:
    """Whether a copy can be made and equals the original."""
    if type(attribute).__eq__ is object.__eq__:
        return False
    try:
        return bool(copy.deepcopy(attribute) == attribute)
    except Exception:  # see above
        return False


async def _drive_saved(loop: Loop, store: LoopStore) -> None:
    pace = CheckpointCadence(loop)
    while not loop.is_over:
        state = loop.state
        await step_once(loop)
        if pace.is_due(state) or loop.is_over:
            snapshot = loop.snapshot()
            await _awaited(store.save(snapshot))
            loop.take(snapshot)
    # Such an object has no retention rules: the snapshot is deleted, unless ``keep`` is set.
    is_default = type(loop).keep is Loop.keep
    if (is_default or goes_at_once(loop.keep)) and hasattr(store, "delete"):
        await _awaited(store.delete())


async def _awaited(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


def is_saved(store: Where) -> TypeGuard[LoopStore]:
    """Whether the store keeps snapshots, not journals."""
    return isinstance(store, LoopStore) and not isinstance(store, App)


# loops that are runs


async def drive(loop: L, store: Where = None) -> L:
    """Drive a loop to its end, or continue the one with its id."""
    vars(loop).pop(UNAWAITED, None)
    if is_saved(store):
        await _drive_saved(loop, store)
        return loop
    async with opened(store) as app:
        try:
            handle = await app.start(loop.flow, **asked(loop), id=loop.id)
        except WrongVersion:
            await _check_version(app, loop)
            raise
        loop.take(await _outcome(handle.outcome(), loop.id))
        await _let_go(app, loop)
    return loop


async def resume(store: Where, id: str | None, kinds: Kinds) -> Loop | None:
    """Continue a loop that was left, to its end."""
    if is_saved(store):
        loop = await load(store, id, kinds)
        if loop is not None:
            await _drive_saved(loop, store)
        return loop
    async with opened(store) as app:
        found = await _find(app, id, kinds)
        if found is None:
            return None
        run_id, header = found
        kind = _kind_of(run_id, header, kinds)
        handle = await app.resume(run_id, [kind.flow])
        loop = kind.from_dict(await _outcome(handle.outcome(), run_id))
        await _let_go(app, loop)
        return loop


async def load(store: Where, id: str | None, kinds: Kinds) -> Loop | None:
    """A loop at its last checkpoint."""
    if is_saved(store):
        return await _load_saved(store, id, kinds)
    async with opened(store) as app:
        found = await _find(app, id, kinds)
        if found is None:
            return None
        run_id, header = found
        kind = _kind_of(run_id, header, kinds)
        if header.status == "completed":
            handle = await app.get(run_id, kind.flow)
            return kind.from_dict(await handle.outcome())
        return await _read(app, run_id, kind)


async def _load_saved(store: LoopStore, id: str | None, kinds: Kinds) -> Loop | None:
    """The loop of the stored snapshot, unless another id is asked for."""
    if id is not None:
        check_run_id(id)
    snapshot = await _awaited(store.load())
    if snapshot is None:
        return None
    loop = the_only(kinds, "resume(store, loop=YourLoop)").from_dict(snapshot)
    return loop if id in (None, loop.id) else None


async def _read(app: App, run_id: str, kind: type[Loop]) -> Loop:
    first = read_first(await app.read(run_id, LAST_CHAPTER, limit=1))
    start = start_of(first)
    parts = kind.flow.args_codec.decode(
        first.args if isinstance(first, ChapterBegan) else start.args
    )
    if isinstance(parts, list):  # it was asked for by name
        parts = kind.flow.bind(*parts[0], **parts[1])
    return kind.from_parts(given(parts, version=int(start.version), id=run_id))


@asynccontextmanager
async def opened(store: Where) -> AsyncIterator[App]:
    """The given app, or one that is opened here and closed here."""
    if isinstance(store, App):
        yield store
    elif store is None or isinstance(store, str):
        refuse_in_run("outlive.loop", IN_A_RUN)
        async with open_app(store) as app:
            yield app
    else:
        raise UsageError(
            f"{store!r} can't keep loops; give a URL, an app of outlive.open(), or an object with "
            "save(snapshot) and load()"
        )


async def _outcome(outcome: Awaitable[Any], run_id: str) -> Any:
    try:
        return await outcome
    except RunNotFound:
        # Somebody else drove it to its end.
        raise RunIdTaken(run_id, "a loop of this id ended, and is not kept (keep=0)") from None


async def _let_go(app: App, loop: Loop) -> None:
    """Delete an ended loop, unless it is to be kept."""
    if goes_at_once(loop.keep):
        with suppress(RunNotFound):  # somebody else drove it, too, and was quicker
            await app.delete(loop.id)


# which loop


def kinds_of(loop: type[Loop] | None) -> Kinds:
    """Loops by the names of their flows: the given one, or all."""
    if loop is not None:
        return {_with_handlers(loop).flow.name: loop}
    return defined()


def _with_handlers(kind: object) -> type[Loop]:
    if isinstance(kind, type) and issubclass(kind, Loop) and hasattr(kind, "flow"):
        return kind
    raise UsageError(f"loop={kind!r} is not a loop that can be driven; give your subclass of Loop")


def class_of(loop: Loop) -> type[Loop]:
    """The class of a loop that shall be driven."""
    if not isinstance(loop, Loop):
        raise UsageError(f"{loop!r} is not a loop; make one: YourLoop(request)")
    return type(loop)


async def _find(app: App, id: str | None, kinds: Kinds) -> tuple[str, Header] | None:
    if id is not None:
        check_run_id(id)
        try:
            reading = await app.read(id, 1 << 62)
        except RunNotFound:
            return None
        return id, reading.header
    live = [each for name in sorted(kinds) for each in await _under_way(app, name)]
    if len(live) > 1:
        named = ", ".join(each.head.run_id for each in live[:5])
        raise UsageError(
            f"{len(live)} loops are under way ({named}{', ...' if len(live) > 5 else ''}); "
            "say which: resume(store, id)"
        )
    return (live[0].head.run_id, live[0].header) if live else None


async def _under_way(app: App, name: str) -> Sequence[Found]:
    live: list[Found] = []
    after: str | None = None
    while True:
        page = await app.find(flow=name, limit=PAGE_MAX, after=after)
        live += [each for each in page.items if each.header.ended_at is None]
        after = page.next
        if after is None:
            return live


def _kind_of(run_id: str, header: Header, kinds: Kinds) -> type[Loop]:
    """The class of a found loop, if its code can continue it."""
    kind = kinds.get(header.flow)
    if kind is None:
        raise FlowNotRegistered(header.flow, list(kinds))
    if header.version not in kind.flow.versions:
        raise incompatible(run_id, header.version, kind)
    return kind


async def _check_version(app: App, loop: Loop) -> None:
    header = (await app.read(loop.id, 1 << 62)).header
    if header.version not in loop.flow.versions:
        raise incompatible(loop.id, header.version, type(loop))


def incompatible(run_id: str, found: str, kind: type[Loop]) -> IncompatibleCheckpoint:
    """The error for a loop that was left by code of another version."""
    version: object = int(found) if found.isdecimal() else found
    return IncompatibleCheckpoint(version, kind.version, f"the checkpoint of loop {run_id}")
