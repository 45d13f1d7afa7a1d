"""``outlive run`` and ``outlive resume``: drive one run here, and print how it ended."""

from __future__ import annotations

import argparse
import asyncio
import shlex
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from outlive.app import App, open_app
from outlive.cli.arguments import parse_input
from outlive.cli.modules import find_flow, find_flows
from outlive.cli.output import log_to_stderr, print_json, print_note, print_text
from outlive.errors import RunError, RunFailed
from outlive.handle import Handle
from outlive.journal.reader import read_events
from outlive.model.run import fold
from outlive.store import Reading
from outlive.views.runs import AFTER_ALL, iso, outcome, summary
from outlive.views.timeline import doubts

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

    return asyncio.run(_drive(asked, start, until_stuck=False, must_exist=False))


def resume(asked: argparse.Namespace) -> int:
    """Go on with a run that there is, until it ends or nothing but a human can help it."""
    flows = find_flows(asked.modules)

    async def take_up(app: App) -> Handle[Any]:
        return await app.resume(asked.run, flows)

    return asyncio.run(_drive(asked, take_up, until_stuck=True, must_exist=True))


async def _drive(
    asked: argparse.Namespace, begin: Begin, *, until_stuck: bool, must_exist: bool
) -> int:
    log_to_stderr()
    async with open_app(asked.store, must_exist=must_exist) as app:
        handle = await begin(app)
        failure = await _follow(app, handle, until_stuck=until_stuck)
        return await _tell(app, handle.id, failure, as_json=asked.json)


async def _follow(app: App, handle: Handle[Any], *, until_stuck: bool) -> RunError | None:
    """Wait for the end of the run; how it failed, or what it waits for, if so."""
    if (await app.read(handle.id, AFTER_ALL)).header.ended_at is not None:
        return None
    end = asyncio.ensure_future(handle.outcome())
    stuck = asyncio.ensure_future(_wait_stuck(app, handle.id))
    await asyncio.wait([end, stuck], return_when=asyncio.FIRST_COMPLETED)
    try:
        if not end.done() and not until_stuck:
            print_note(f"outlive: {await stuck}; this command goes on when that is done")
            await asyncio.wait([end])
        if not end.done():
            return RunError(await stuck)
        await end
    except RunError as failed:
        return failed
    finally:
        end.cancel()
        stuck.cancel()
    return None


async def _wait_stuck(app: App, run_id: str) -> str:
    """Wait until the run can't go on by itself; why, and what to do about it."""
    is_told = False
    while True:
        reading = await app.read(run_id, AFTER_ALL)
        head, header = reading.head, reading.header
        is_free = head.worker is None and head.posted == head.consumed
        if is_free and header.status in ("waiting", "in_doubt"):
            if header.wake_at is None or header.reason:
                return explain_wait(await app.read(run_id))
            if not is_told:
                print_note(f"run {run_id} sleeps until {iso(header.wake_at)}")
                is_told = True
        await asyncio.sleep(LOOK_SECONDS)


def explain_wait(reading: Reading) -> str:
    """What keeps a run from going on, and what to do about it."""
    run_id, reason = reading.head.run_id, reading.header.reason
    if reason:
        return f"run {run_id} can't go on: {reason}"
    asking = [doubt for doubt in doubts(read_events(reading), driven=False) if doubt.asks]
    if not asking:
        return f"run {run_id} waits for mail"
    doubt = asking[0]
    resolve = f"outlive resolve {shlex.quote(run_id)} {shlex.quote(doubt.step)}"
    return (
        f"run {run_id} is in doubt about effect {doubt.step} (key {doubt.key}): {doubt.why}; "
        f"find out, then `{resolve} --happened JSON`, or --not-happened, or --fail"
    )


async def _tell(app: App, run_id: str, failure: RunError | None, *, as_json: bool) -> int:
    """Print the run as it stands, from what is durable."""
    reading = await app.read(run_id)
    state = fold(read_events(reading))
    if state.error is not None:
        failure = RunFailed(run_id, state.error.type_name, state.error.message)
    value, error = outcome(state)
    if as_json:
        print_json(summary(reading) | {"outcome": value, "error": error})
    elif failure is None:
        print_text(value if isinstance(value, str) else msgspec.json.encode(value).decode())
    if failure is not None:
        raise failure
    return 0
