"""``outlive answer``, ``signal``, ``cancel``, ``retry``, ``resolve``: mail to a run."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import shlex
from contextlib import suppress
from typing import Any

import msgspec

from outlive.app.app import App
from outlive.app.mail import Question
from outlive.app.open import open_app
from outlive.cli.modules import parse_json
from outlive.cli.output import print_json, print_line
from outlive.journal.reader import read_events
from outlive.model.mail import Verdict
from outlive.model.schema import misfit
from outlive.stores.types import Reading
from outlive.views.runs import AFTER_ALL
from outlive.views.timeline import doubts, split_id

_YES_AND_NO = {"yes": True, "y": True, "no": False, "n": False}


def answer(asked: argparse.Namespace) -> int:
    """Answer a question of a run."""

    async def post(app: App) -> dict[str, Any]:
        handle = await app.get(asked.run)
        value = _meant(asked.value, await handle.questions(), asked.question)
        question = await handle.answer(value, asked.question, by=who(asked))
        said = msgspec.json.encode(value).decode()
        return {"question": question.id, "answer": value, "told": f"{question.id}: {said}"}

    return asyncio.run(_post(asked, post))


def signal(asked: argparse.Namespace) -> int:
    """Send a signal to a run; the value is JSON, or any other text."""

    async def post(app: App) -> dict[str, Any]:
        handle = await app.get(asked.run)
        is_new = await handle.signal_json(
            asked.name, _as_json(asked.value), asked.id, by=who(asked)
        )
        told = f"signal {asked.name}" if is_new else f"signal {asked.id} was sent before: no change"
        return {"signal": asked.name, "is_new": is_new, "told": told}

    return asyncio.run(_post(asked, post))


def cancel(asked: argparse.Namespace) -> int:
    """Ask a run to stop."""

    async def post(app: App) -> dict[str, Any]:
        await (await app.get(asked.run)).cancel(by=who(asked))
        return {"cancel": True, "told": "it shall stop; what happened is undone"}

    return asyncio.run(_post(asked, post))


def retry(asked: argparse.Namespace) -> int:
    """Retry a failed run."""

    async def post(app: App) -> dict[str, Any]:
        await app.retry(asked.run, by=who(asked))
        return {"retry": True, "told": "what failed is tried again"}

    return asyncio.run(_post(asked, post))


async def _post(asked: argparse.Namespace, post: Any) -> int:
    async with open_app(asked.store, drive=False, must_exist=True) as app:
        said = await post(app)
        told = said.pop("told")
        reading = await app.read(asked.run, AFTER_ALL)
    worker, flow = reading.head.worker, reading.header.flow
    if asked.json:
        print_json({"id": asked.run, **said, "worker": worker})
        return 0
    print_line(f"noted: run {asked.run}: {told}")
    if worker is not None:
        print_line(f"worker {worker}, which drives the run, takes it up")
    else:
        command = f"outlive resume {shlex.quote(asked.run)} MODULE"
        print_line(f"a worker that has flow {flow} takes it up; or, here: {command}")
    return 0


def who(asked: argparse.Namespace) -> str:
    """The sender: as given, or the user who is logged in."""
    if asked.by is not None:
        return str(asked.by)
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""


def _as_json(text: str) -> bytes:
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return msgspec.json.encode(text)
    return text.encode()


def _meant(text: str, questions: list[Question], named: str | None) -> Any:
    """Parse a typed answer: JSON, plain text where the question asks for a text, or yes and no.

    The app decides which question is meant, and whether the answer fits.
    """
    fitting = [each for each in questions if named in (None, each.id)]
    schema = fitting[0].schema if len(fitting) == 1 else None
    if schema is None:
        return msgspec.json.decode(_as_json(text))
    for value in _readings(text):
        if misfit(value, schema) is None:
            return value
    return _readings(text)[0]


def _readings(text: str) -> list[Any]:
    meant: list[Any] = []
    with suppress(msgspec.MsgspecError, ValueError, RecursionError):
        meant.append(msgspec.json.decode(text))
    meant.append(text)
    if text.lower() in _YES_AND_NO:
        meant.append(_YES_AND_NO[text.lower()])
    return meant


def resolve(asked: argparse.Namespace) -> int:
    """Post the verdict; the run's driver turns it into an event."""
    verdict, value = _word(asked)
    return asyncio.run(_post_verdict(asked, verdict, value))


def _word(asked: argparse.Namespace) -> tuple[Verdict, bytes]:
    if asked.happened is not None:
        parse_json(asked.happened, "--happened", """--happened '"receipt 7"'""")
        return "happened", asked.happened.encode()
    return ("not_happened" if asked.not_happened else "fail"), b"null"


async def _post_verdict(asked: argparse.Namespace, verdict: Verdict, value: bytes) -> int:
    async with open_app(asked.store, drive=False, must_exist=True) as app:
        reading = await app.read(asked.run)
        step = _full_id(reading, asked.step)
        await app.resolve(asked.run, step, verdict, value, by=who(asked))
        await _tell_next(app, asked, step, verdict)
    return 0


def _full_id(reading: Reading, step: str) -> str:
    """Find the effect: ``refund`` and ``refund#1`` are enough if only one matches."""
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
