"""``outlive run`` and ``outlive resume``: drive one run here, and print how it ended."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from outlive.app import App
from outlive.blocking import run_loop
from outlive.cli.arguments import parse_input
from outlive.cli.modules import find_flow, find_flows
from outlive.cli.output import log_to_stderr, print_json, print_note, print_text, safe_json
from outlive.cli.stopping import listening
from outlive.engine.notices import OnWait, wait_of
from outlive.errors import RunCancelled, RunError, RunFailed
from outlive.handle import Handle
from outlive.journal.reader import read_events
from outlive.model.run import fold
from outlive.opening import open_app
from outlive.settings import Settings
from outlive.store import LAST_CHAPTER
from outlive.views.runs import AFTER_ALL, iso, outcome, summary

#: How often a driven run is looked at from outside, for what its driver does not say.
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
    return _run(asked, Drive(begin=start, modules=[module], until_stuck=False, must_exist=False))


def resume(asked: argparse.Namespace) -> int:
    """Go on with a run that there is, until it ends or nothing but a human can help it."""
    flows = find_flows(asked.modules)

    async def take_up(app: App) -> Handle[Any]:
        return await app.resume(asked.run, flows)

    modules = list(asked.modules)
    return _run(asked, Drive(begin=take_up, modules=modules, until_stuck=True, must_exist=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """How one run is driven here."""

    begin: Begin
    modules: list[str]
    #: Return when nothing but a human can help the run.
    until_stuck: bool
    must_exist: bool


def _run(asked: argparse.Namespace, drive: Drive) -> int:
    log_to_stderr()
    code, is_clean = run_loop(_drive(asked, drive))
    if not is_clean:
        # A thread that does not end would keep the process, whose time is over.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


async def _drive(asked: argparse.Namespace, drive: Drive) -> tuple[int, bool]:
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
            is_clean = await told.drain(app.drain)
            following.cancel()
            await asyncio.wait([following])
            if (await app.read(handle.id, AFTER_ALL)).header.ended_at is not None:
                return await _tell(app, handle.id, None, as_json=asked.json), is_clean
            words = ["outlive", "resume", handle.id, *drive.modules]
            print_note(f"outlive: run {handle.id} stopped; `{shlex.join(words)}` goes on with it")
            return 128 + (told.signal or signal.SIGTERM), is_clean


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
            is_asleep = run.wake_at is not None and not run.children
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
