"""``outlive worker``: drive whatever runs of these flows may be driven, until told to stop."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys

from outlive.app import App, open_app
from outlive.cli.modules import AnyFlow, find_flows
from outlive.cli.output import log_to_stderr, print_json, print_line, print_note
from outlive.errors import UsageError


def worker(asked: argparse.Namespace) -> int:
    """Work until SIGINT or SIGTERM, or until the store fails."""
    flows = find_flows(asked.modules)
    if not flows:
        named = ", ".join(asked.modules)
        raise UsageError(f"there is no flow in {named}; decorate a function with @outlive.flow")
    log_to_stderr()
    return asyncio.run(_work(asked, flows))


async def _work(asked: argparse.Namespace, flows: list[AnyFlow]) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with open_app(asked.store) as app:
        await _work_until(app, flows, stop, asked)
    print_note("outlive: the worker stopped and handed its runs over")
    return 0


async def _work_until(
    app: App, flows: list[AnyFlow], stop: asyncio.Event, asked: argparse.Namespace
) -> None:
    async with app.worker(flows, concurrency=asked.concurrency) as working:
        names = sorted(flow.name for flow in flows)
        if asked.json:
            print_json({"worker": working.id, "flows": names})
        else:
            print_line(f"worker {working.id} drives {', '.join(names)}")
        sys.stdout.flush()
        told = asyncio.ensure_future(stop.wait())
        ended = asyncio.ensure_future(working.wait())
        await asyncio.wait([told, ended], return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        ended.cancel()
    if working.failure is not None:
        raise working.failure
