"""``outlive run`` and ``outlive resume``: drive one run here, and print how it ended."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from outlive.app import App
from outlive.blocking import run_loop
from outlive.cli.arguments import parse_input
from outlive.cli.modules import find_flow, find_flows
from outlive.cli.output import log_to_stderr, print_json, print_note, print_text, safe_json
from outlive.cli.stopping import listening
from outlive.cli.stuck import watch_stuck
from outlive.errors import OutliveError, RunCancelled, RunError, RunFailed
from outlive.handle import Handle
from outlive.journal.reader import read_events
from outlive.model.events import QuestionAsked
from outlive.model.run import fold
from outlive.opening import open_app
from outlive.settings import Settings
from outlive.views.runs import AFTER_ALL, outcome, summary
from outlive.views.wanted import example, wanted

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
    end = asyncio.ensure_future(handle.outcome())
    wait = _first_stuck(app, handle) if until_stuck else _tell_all(app, handle)
    stuck = asyncio.ensure_future(wait)
    try:
        await asyncio.wait([end, stuck], return_when=asyncio.FIRST_COMPLETED)
        if not end.done():
            return RunError(await stuck)
        await end
    except RunError as failed:
        return failed
    finally:
        end.cancel()
        stuck.cancel()
        # Neither may look at the store when it is closed.
        await asyncio.gather(end, stuck, return_exceptions=True)
    return None


async def _first_stuck(app: App, handle: Handle[Any]) -> str:
    async with aclosing(watch_stuck(app, handle.id, with_questions=True)) as found:
        return await anext(found)


async def _tell_all(app: App, handle: Handle[Any]) -> str:
    """Say whatever the run waits for, and wait with it; only a failing store ends this."""
    asks = asyncio.ensure_future(_tell_questions(handle))
    try:
        async with aclosing(watch_stuck(app, handle.id, with_questions=False)) as found:
            async for why in found:
                print_note(f"outlive: {why}; this command goes on when that is done")
    finally:
        asks.cancel()
        with suppress(asyncio.CancelledError, OutliveError):
            await asks
    return ""


async def _tell_questions(handle: Handle[Any]) -> None:
    """Say what the run asks as soon as it does: whoever is asked may sit right here."""
    asked = await handle.run()
    for question in asked.questions.values():
        _tell_question(handle.id, question)
    async with aclosing(handle.events(asked.seq)) as events:
        async for event in events:
            if isinstance(event, QuestionAsked):
                _tell_question(handle.id, event)


def _tell_question(run_id: str, asked: QuestionAsked) -> None:
    schema = msgspec.json.decode(asked.schema) if asked.schema else None
    words = f"outlive answer {shlex.quote(run_id)} {example(schema)}"
    print_note(f"run {run_id} asks: {asked.text}")
    print_note(f"  {wanted(schema)}: {words} --question {shlex.quote(asked.question)}")


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
