"""``outlive answer``, ``signal``, ``cancel``, ``retry``: say something to a run, from anywhere."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import shlex
from contextlib import suppress
from typing import Any

import msgspec

from outlive.app import App
from outlive.cli.output import print_json, print_line
from outlive.model.schema import misfit
from outlive.opening import open_app
from outlive.posting import Question
from outlive.views.runs import AFTER_ALL

_YES_AND_NO = {"yes": True, "y": True, "no": False, "n": False}


def answer(asked: argparse.Namespace) -> int:
    """Answer a question of a run."""

    async def post(app: App) -> dict[str, Any]:
        handle = await app.get(asked.run)
        value = _meant(asked.value, await handle.questions(), asked.question)
        question = await handle.answer(value, asked.question, by=_who(asked))
        said = msgspec.json.encode(value).decode()
        return {"question": question.id, "answer": value, "told": f"{question.id}: {said}"}

    return asyncio.run(_post(asked, post))


def signal(asked: argparse.Namespace) -> int:
    """Send a signal to a run; the value is JSON, or a text that is none."""

    async def post(app: App) -> dict[str, Any]:
        handle = await app.get(asked.run)
        is_new = await handle.signal_json(asked.name, _as_json(asked.value), asked.id)
        told = f"signal {asked.name}" if is_new else f"signal {asked.id} was sent before: no change"
        return {"signal": asked.name, "is_new": is_new, "told": told}

    return asyncio.run(_post(asked, post))


def cancel(asked: argparse.Namespace) -> int:
    """Ask a run to stop."""

    async def post(app: App) -> dict[str, Any]:
        await (await app.get(asked.run)).cancel(by=_who(asked))
        return {"cancel": True, "told": "it shall stop; what happened is undone"}

    return asyncio.run(_post(asked, post))


def retry(asked: argparse.Namespace) -> int:
    """Give a failed run another try."""

    async def post(app: App) -> dict[str, Any]:
        await app.retry(asked.run, by=_who(asked))
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


def _who(asked: argparse.Namespace) -> str:
    """Who says so: as told, or whoever is logged in."""
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
    """What somebody typed: JSON, or as it is where the question asks for a text, or yes and no.

    Which question it is, and whether the answer fits, the door decides.
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
