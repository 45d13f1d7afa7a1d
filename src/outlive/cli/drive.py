"""``outlive run``, ``resume``, ``fork``, ``diff``: drive one run here, or compare two."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from outlive.app.app import App
from outlive.app.forks import ONE_CHANGE
from outlive.app.handle import Handle
from outlive.app.open import open_app
from outlive.cli.mail import who
from outlive.cli.modules import AnyFlow, find_flow, find_flows, find_queues, parse_input
from outlive.cli.output import (
    log_to_stderr,
    now_ms,
    print_json,
    print_line,
    print_note,
    print_table,
    print_text,
    safe_json,
)
from outlive.engine.notices import OnWait, wait_of
from outlive.errors import ForkRefused, RunCancelled, RunError, RunFailed, UsageError
from outlive.journal.fork import events_of
from outlive.journal.reader import read_events
from outlive.model import events as ev
from outlive.model.events import Event
from outlive.model.ids import is_run
from outlive.model.run import fold
from outlive.portal import UnderWay, fate_of, named, run_loop
from outlive.settings import Settings
from outlive.stores.types import LAST_CHAPTER
from outlive.views.runs import AFTER_ALL, iso, outcome, summary
from outlive.views.timeline import ComparedStep, StepEnd
from outlive.views.timeline import diff as compare
from outlive.views.values import as_json, preview, read_value
from outlive.worker.worker import Worker

VALUE_CHARS = 60


def fork(asked: argparse.Namespace) -> int:
    """Make a fork, and print its id."""
    run_id, flow = asyncio.run(_fork(asked))
    if asked.json:
        print_json({"id": run_id, "of": asked.run, "flow": flow})
        return 0
    print_line(run_id)
    print_note(f"a worker that has flow {flow} takes it up; or: outlive resume {run_id} MODULE")
    return 0


async def _fork(asked: argparse.Namespace) -> tuple[str, str]:
    changes = [_parse_set(each) for each in asked.set or ()]
    if len(changes) > 1:
        raise ForkRefused(asked.run, ONE_CHANGE)
    async with open_app(asked.store, drive=False, must_exist=True) as app:
        handle = await app.fork(
            asked.run, at=asked.at, set=dict(changes), id=asked.id, by=who(asked)
        )
        return handle.id, (await app.read(handle.id, 1 << 62)).header.flow


def _parse_set(text: str) -> tuple[str, Any]:
    step, equals, json = text.partition("=")
    try:
        if not equals or not step:
            raise ValueError("it has no =")
        return step, msgspec.json.decode(json)
    except (msgspec.DecodeError, ValueError) as error:
        raise UsageError(f"--set {text!r} is not STEP=JSON: {error}") from None


def diff(asked: argparse.Namespace) -> int:
    """Print both runs side by side, and their first difference."""
    lines = asyncio.run(_diff(asked))
    first = next((line for line in lines if line.difference), None)
    if asked.json:
        print_json({"first": first and first.step, "steps": [_fields(line) for line in lines]})
        return 0
    columns = ("STEP", asked.a, asked.b, "DIFFERS")
    print_table(columns, [_cells(line) for line in lines])
    print_note("they are the same" if first is None else f"they first differ at {first.step}")
    return 0


async def _diff(asked: argparse.Namespace) -> list[ComparedStep]:
    async with open_app(asked.store, drive=False, must_exist=True) as app:
        both = []
        for run_id in (asked.a, asked.b):
            if not is_run(run_id):
                raise UsageError(f"{run_id} is not a run and has no steps; `outlive show` shows it")
            reading = await app.read(run_id, LAST_CHAPTER)
            both.append(await events_of(app.store, reading))
        return compare(*both)


def _cells(line: ComparedStep) -> list[str]:
    return [line.step, _shown(line.a), _shown(line.b), line.difference]


def _shown(ended: StepEnd | None) -> str:
    if ended is None:
        return "-"
    if ended.error is not None:
        return f"{ended.error.type_name}: {ended.error.message}"[:VALUE_CHARS]
    return preview(ended.value or b"", VALUE_CHARS)


def _fields(line: ComparedStep) -> dict[str, Any]:
    return {
        "step": line.step,
        "differs": line.difference or None,
        "a": _side(line.a),
        "b": _side(line.b),
    }


def _side(ended: StepEnd | None) -> dict[str, Any] | None:
    if ended is None:
        return None
    told: dict[str, Any] = {"arguments": ended.args_digest.hex(), "digest": ended.digest.hex()}
    if ended.error is not None:
        return told | {"error": f"{ended.error.type_name}: {ended.error.message}"}
    return told | {"value": as_json(read_value(ended.value)) if ended.value else None}


SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Told:
    """The number of stop signals that the process received."""

    def __init__(self) -> None:
        self.once = asyncio.Event()
        self._twice = asyncio.Event()
        #: The first signal.
        self.signal: signal.Signals | None = None

    def hear(self, number: signal.Signals) -> None:
        """Count one more signal."""
        if self.once.is_set():
            self._twice.set()
        else:
            self.signal = number
            self.once.set()

    async def drain(
        self, drain: Callable[[float | None], Awaitable[bool]], steps: Sequence[str] = ()
    ) -> bool:
        """Stop within the set limit, or at once at the second signal."""
        if self.signal is not None:
            seconds = Settings.from_environment().drain_seconds
            over = f" once {named(steps)} has ended," if steps else ""
            print_note(
                f"outlive: stopping{over} within {seconds:g} s; a second signal stops at once"
            )
        draining = asyncio.ensure_future(drain(None))
        hurry = asyncio.ensure_future(self._twice.wait())
        await asyncio.wait([draining, hurry], return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not draining.done():
            await drain(0)
        return await draining


@contextmanager
def listening() -> Iterator[Told]:
    """Handle signals on this loop."""
    told, loop = Told(), asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, told.hear, number)
    try:
        yield told
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


#: The interval at which a driven run is looked at from outside, for what its driver does not say.
LOOK_SECONDS = 0.5
Begin = Callable[[App], Awaitable[Handle[Any]]]


def run(asked: argparse.Namespace) -> int:
    """Start or go on, and print the outcome."""
    flow = find_flow(asked.flow)
    args, kwargs = parse_input(flow, asked.input)

    async def start(app: App) -> Handle[Any]:
        handle = await app.start(flow, *args, id=asked.id, **kwargs)
        if asked.id is None:
            print_note(f"run {handle.id}")
        return handle

    module = asked.flow.partition(":")[0]
    return _run(
        asked, DriveOptions(begin=start, modules=[module], until_stuck=False, must_exist=False)
    )


def resume(asked: argparse.Namespace) -> int:
    """Go on with a run that there is, until it ends or nothing but a human can help it."""
    flows = find_flows(asked.modules)

    async def take_up(app: App) -> Handle[Any]:
        return await app.resume(asked.run, flows)

    modules = list(asked.modules)
    return _run(
        asked, DriveOptions(begin=take_up, modules=modules, until_stuck=True, must_exist=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveOptions:
    """Options for driving one run here."""

    begin: Begin
    modules: list[str]
    #: Return when nothing but a human can help the run.
    until_stuck: bool
    must_exist: bool


def _run(asked: argparse.Namespace, drive: DriveOptions) -> int:
    log_to_stderr()
    code, is_clean = run_loop(_drive(asked, drive))
    if not is_clean:
        # A thread that does not end would keep the process, whose time is over.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


async def _drive(asked: argparse.Namespace, drive: DriveOptions) -> tuple[int, bool]:
    """The exit code, and whether nothing runs here any more."""
    with listening() as told:
        settings = Settings.from_environment()
        if drive.until_stuck:
            # A run that waits is told at once, not when the moment for quick mail is over.
            settings = replace(settings, idle_seconds=0.0)
        async with open_app(asked.store, must_exist=drive.must_exist, settings=settings) as app:
            handle = await drive.begin(app)
            following = asyncio.ensure_future(_follow(app, handle, until_stuck=drive.until_stuck))
            stop = asyncio.ensure_future(told.once.wait())
            await asyncio.wait([following, stop], return_when=asyncio.FIRST_COMPLETED)
            stop.cancel()
            if following.done():
                return await _tell(app, handle.id, await following, as_json=asked.json), True
            following.cancel()
            await asyncio.wait([following])
            under_way = app._workers.under_way(handle.id)  # noqa: SLF001  # of this process
            is_clean = await told.drain(app.drain, [step for step, _ in under_way])
            reading = await app.read(handle.id, LAST_CHAPTER)
            if reading.header.ended_at is not None:
                return await _tell(app, handle.id, None, as_json=asked.json), is_clean
            cut_off = _without_end(under_way, read_events(reading))
            words = ["outlive", "resume", handle.id, *drive.modules]
            print_note(
                f"outlive: run {handle.id} stopped and is safe: what was recorded is kept, "
                f"{fate_of(cut_off)}; `{shlex.join(words)}` goes on with it"
            )
            return 128 + (told.signal or signal.SIGTERM), is_clean


def _without_end(under_way: UnderWay, events: Sequence[Event]) -> UnderWay:
    """The steps that were cut off: no end of them is recorded."""
    ends = (ev.StepDone, ev.StepRaised, ev.EffectDone, ev.EffectRaised)
    over = {event.step for event in events if isinstance(event, ends)}
    return [each for each in under_way if each[0] not in over]


async def _follow(app: App, handle: Handle[Any], *, until_stuck: bool) -> RunError | None:
    """Wait for the end of the run; how it failed, or what it waits for, if so."""
    if (await app.read(handle.id, AFTER_ALL)).header.ended_at is not None:
        return None
    on_wait: OnWait = "raise" if until_stuck else "log"
    end = asyncio.ensure_future(handle.outcome(on_wait=on_wait))
    sleeps = asyncio.ensure_future(_tell_sleeps(app, handle.id))
    try:
        await asyncio.wait([end, sleeps], return_when=asyncio.FIRST_COMPLETED)
        if not end.done():
            await sleeps  # only a failing store ends it
        await end
    except RunError as failed:
        return failed
    finally:
        end.cancel()
        sleeps.cancel()
        # Neither may look at the store when it is closed.
        await asyncio.gather(end, sleeps, return_exceptions=True)
    return None


async def _tell_sleeps(app: App, run_id: str) -> None:
    """Say until when the run sleeps: that is progress, but it may take a month."""
    seen = 0
    while True:
        reading = await app.read(run_id, AFTER_ALL)
        head, header = reading.head, reading.header
        if head.worker is None and header.status == "waiting" and head.seq != seen:
            seen = head.seq
            run = fold(read_events(await app.read(run_id, LAST_CHAPTER)))
            is_asleep = (run.wake_at or 0) > now_ms(app.store) and not run.children
            if is_asleep and wait_of(run_id, run) is None:
                print_note(f"run {run_id} sleeps until {iso(run.wake_at)}")
        await asyncio.sleep(LOOK_SECONDS)


async def _tell(app: App, run_id: str, failure: RunError | None, *, as_json: bool) -> int:
    """Print the run as it stands, from what is durable."""
    reading = await app.read(run_id)
    state = fold(read_events(reading))
    if state.status == "cancelled":
        failure = RunCancelled(run_id)
    elif state.error is not None:
        failure = RunFailed(run_id, state.error.type_name, state.error.message)
    value, error = outcome(state)
    if as_json:
        print_json(summary(reading) | {"outcome": value, "error": error})
    elif failure is None:
        print_text(value if isinstance(value, str) else safe_json(msgspec.json.encode(value)))
    if failure is not None:
        raise failure
    return 0


def worker(asked: argparse.Namespace) -> int:
    """Work until SIGINT or SIGTERM, or until the store fails."""
    flows = find_flows(asked.modules)
    if not flows:
        named = ", ".join(asked.modules)
        raise UsageError(f"there is no flow in {named}; decorate a function with @outlive.flow")
    log_to_stderr(asked.log_level, "info")
    is_clean = run_loop(_work(asked, flows))
    again = f"outlive worker {' '.join(asked.modules)}"
    print_note(f"outlive: the worker stopped and handed its runs over; `{again}` goes on with them")
    if is_clean:
        return 0
    print_note("outlive: what still ran was cut off: steps are repeated, effects settled")
    # A thread that does not end would keep the process, whose time is over.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


async def _work(asked: argparse.Namespace, flows: list[AnyFlow]) -> bool:
    with listening() as told:
        async with open_app(asked.store) as app:
            return await _work_until(app, flows, told, asked)


async def _work_until(
    app: App, flows: list[AnyFlow], told: Told, asked: argparse.Namespace
) -> bool:
    working: Worker
    for queue in find_queues(asked.modules):
        await app.set_queue(queue, replace=False)
    options = {"concurrency": asked.concurrency, "queues": asked.queues}
    async with app.worker(flows, **options, drain=0) as working:
        names = sorted({flow.name for flow in flows})
        if asked.json:
            print_json({"worker": working.id, "flows": names, "queues": asked.queues})
        else:
            where = f" of {', '.join(asked.queues)}" if asked.queues else ""
            print_line(f"worker {working.id} drives {', '.join(names)}{where}")
        sys.stdout.flush()
        first = asyncio.ensure_future(told.once.wait())
        ended = asyncio.ensure_future(working.wait())
        await asyncio.wait([first, ended], return_when=asyncio.FIRST_COMPLETED)
        first.cancel()
        is_clean = await told.drain(working.drain)
        ended.cancel()
    if working.failure is not None:
        raise working.failure
    return is_clean
