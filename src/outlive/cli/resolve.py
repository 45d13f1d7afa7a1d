"""``outlive resolve``: a human says what became of an effect in doubt."""

from __future__ import annotations

import argparse
import asyncio
import shlex

from outlive.app import App
from outlive.cli.arguments import parse_json
from outlive.cli.output import print_json, print_line
from outlive.journal.reader import read_events
from outlive.model.mail import Verdict
from outlive.opening import open_app
from outlive.store import Reading
from outlive.views.timeline import doubts, split_id


def resolve(asked: argparse.Namespace) -> int:
    """Post the word; the run's driver makes it an event."""
    verdict, value = _word(asked)
    return asyncio.run(_post(asked, verdict, value))


def _word(asked: argparse.Namespace) -> tuple[Verdict, bytes]:
    if asked.happened is not None:
        parse_json(asked.happened, "--happened", """--happened '"receipt 7"'""")
        return "happened", asked.happened.encode()
    return ("not_happened" if asked.not_happened else "fail"), b"null"


async def _post(asked: argparse.Namespace, verdict: Verdict, value: bytes) -> int:
    async with open_app(asked.store, drive=False, must_exist=True) as app:
        reading = await app.read(asked.run)
        step = _full_id(reading, asked.step)
        await app.resolve(asked.run, step, verdict, value)
        await _tell_next(app, asked, step, verdict)
    return 0


def _full_id(reading: Reading, step: str) -> str:
    """``refund`` and ``refund#1`` will do where only one effect in doubt is called so."""
    events = read_events(reading)
    open_ = [doubt.step for doubt in doubts(reading.head.run_id, events, driven=False)]
    named = [each for each in open_ if step in _names(each)]
    return named[0] if len(named) == 1 else step


def _names(step_id: str) -> tuple[str, str, str]:
    _, place = split_id(step_id)
    return step_id, place, place.partition("#")[0]


async def _tell_next(app: App, asked: argparse.Namespace, step: str, verdict: Verdict) -> None:
    reading = await app.read(asked.run)
    worker, flow = reading.head.worker, reading.header.flow
    if asked.json:
        print_json({"id": asked.run, "step": step, "verdict": verdict, "worker": worker})
        return
    print_line(f"noted: effect {step} of run {asked.run}: {verdict.replace('_', ' ')}")
    if worker is not None:
        print_line(f"worker {worker}, which drives the run, takes it up")
    else:
        command = f"outlive resume {shlex.quote(asked.run)} MODULE"
        print_line(f"a worker that has flow {flow} takes it up; or, here: {command}")
