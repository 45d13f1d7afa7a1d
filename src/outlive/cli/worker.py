"""``outlive worker``: drive whatever runs of these flows may be driven, until told to stop."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from outlive.app import App
from outlive.blocking import run_loop
from outlive.cli.modules import AnyFlow, find_flows, find_queues
from outlive.cli.output import log_to_stderr, print_json, print_line, print_note
from outlive.cli.stopping import Told, listening
from outlive.errors import UsageError
from outlive.opening import open_app
from outlive.worker.worker import Worker


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
