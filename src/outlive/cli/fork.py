"""``outlive fork`` and ``outlive diff``: another way from some place, and how it differs."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import msgspec

from outlive.cli.output import print_json, print_line, print_note, print_table
from outlive.errors import ForkRefused, UsageError
from outlive.forking import ONE_CHANGE
from outlive.journal.forking import events_of
from outlive.model.ids import is_run
from outlive.opening import open_app
from outlive.store import LAST_CHAPTER
from outlive.views.diff import Ended, Line
from outlive.views.diff import diff as compare
from outlive.views.values import as_json, preview, read_value

VALUE_CHARS = 60


def fork(asked: argparse.Namespace) -> int:
    """Make a fork, and say its id."""
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
        handle = await app.fork(asked.run, at=asked.at, set=dict(changes), id=asked.id)
        return handle.id, (await app.read(handle.id, 1 << 62)).header.flow


def _parse_set(text: str) -> tuple[str, Any]:
    step, equals, json = text.partition("=")
    try:
        if not equals or not step:
            raise ValueError("it has no =")
        return step, msgspec.json.decode(json)
    except (msgspec.DecodeError, ValueError) as error:
        raise UsageError(f"--set {text!r} is no STEP=JSON: {error}") from None


def diff(asked: argparse.Namespace) -> int:
    """Print both runs side by side, and where they first differ."""
    lines = asyncio.run(_diff(asked))
    first = next((line for line in lines if line.difference), None)
    if asked.json:
        print_json({"first": first and first.step, "steps": [_fields(line) for line in lines]})
        return 0
    columns = ("STEP", asked.a, asked.b, "DIFFERS")
    print_table(columns, [_cells(line) for line in lines])
    print_note("they are the same" if first is None else f"they first differ at {first.step}")
    return 0


async def _diff(asked: argparse.Namespace) -> list[Line]:
    async with open_app(asked.store, drive=False, must_exist=True) as app:
        both = []
        for run_id in (asked.a, asked.b):
            if not is_run(run_id):
                raise UsageError(f"{run_id} is no run, and has no steps; `outlive show` shows it")
            reading = await app.read(run_id, LAST_CHAPTER)
            both.append(await events_of(app.store, reading))
        return compare(*both)


def _cells(line: Line) -> list[str]:
    return [line.step, _shown(line.a), _shown(line.b), line.difference]


def _shown(ended: Ended | None) -> str:
    if ended is None:
        return "-"
    if ended.error is not None:
        return f"{ended.error.type_name}: {ended.error.message}"[:VALUE_CHARS]
    return preview(ended.value or b"", VALUE_CHARS)


def _fields(line: Line) -> dict[str, Any]:
    return {
        "step": line.step,
        "differs": line.difference or None,
        "a": _side(line.a),
        "b": _side(line.b),
    }


def _side(ended: Ended | None) -> dict[str, Any] | None:
    if ended is None:
        return None
    told: dict[str, Any] = {"arguments": ended.args_digest.hex(), "digest": ended.digest.hex()}
    if ended.error is not None:
        return told | {"error": f"{ended.error.type_name}: {ended.error.message}"}
    return told | {"value": as_json(read_value(ended.value)) if ended.value else None}
