"""The chapter of the page about values: what they take on disk, and what they cost in time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.chapter import table
from bench.figures import count, seconds
from bench.growth import WORKLOADS
from bench.plan import PLANS
from bench.plots import Curve, Point, draw
from bench.values_run import results_of

#: Microseconds per message, and per small value, that are aimed at.
PUT_MAX, SMALL_MAX = 1.5, 1.0
GREEN, BLUE, GREY = "#0a7d4f", "#0b57a4", "#888888"


def newest(folder: Path) -> Path | None:
    """The results that were written last, if there are any."""
    there = [folder / results_of(form) for form in PLANS if (folder / results_of(form)).exists()]
    return max(there, key=lambda path: path.stat().st_mtime) if there else None


def written(path: Path, folder: Path, stem: str) -> list[str]:
    """All of it; its pictures go into the folder."""
    told: dict[str, Any] = json.loads(path.read_text())
    return [
        "## Values: what they take, and what they cost",
        "",
        "A flow gives its whole state to a step and has it saved as the outcome, at every turn. "
        f"Measured on {told['on']} at {told['commit']} in {told['minutes']:.1f} minutes.",
        "",
        *_kept(told["kept"]),
        *_puts(told["puts"], told["small"], folder, stem),
        *_reads(told["reads"], folder, stem),
        *_seal(told["seal"]),
    ]


def _kept(rows: Sequence[dict[str, Any]]) -> list[str]:
    words = (
        "Bytes on disk at the end (tables, indexes, free space and envelopes) divided by the bytes "
        "of new text. LangGraph stores all of its state at every step, on its SQLite saver, with "
        '`durability="sync"`; there the conversation is its state, and no argument is stored.'
    )
    bounds = {each.name: each for each in WORKLOADS}
    cells = [
        [
            row["workload"],
            f"{row['sqlite']['written'] / 1e6:,.1f} MB",
            _ratio(row["sqlite"], bounds[row["workload"]].on_sqlite),
            _ratio(row["postgres"], bounds[row["workload"]].on_postgres),
            _ratio(row.get("langgraph"), None),
        ]
        for row in rows
    ]
    head = ["state", "new", "Outlive, SQLite (bound)", "Outlive, PostgreSQL (bound)", "LangGraph"]
    return ["### On disk", "", words, "", *table(head, cells), ""]


def _ratio(kept: dict[str, Any] | None, bound: float | None) -> str:
    if kept is None:
        return "–"
    if "error" in kept:
        return str(kept["error"]).replace("|", "/")
    ratio = kept["stored"] / kept["written"]
    if bound is None:
        return f"{ratio:,.1f}x"
    verdict = "" if ratio <= bound else ", **not reached**"
    return f"{ratio:.3f}x (≤ {bound}{verdict})"


def _puts(
    rows: Sequence[dict[str, float]], small: dict[str, float], folder: Path, stem: str
) -> list[str]:
    more = small["put"] - small["codec"]
    words = (
        "A list of messages is stored again, one message longer each time. The time per message, "
        "without that of the new one, beside that of encoding and hashing the whole list. Thread "
        f"time, minimum of many. Goal: {PUT_MAX} µs. A value of 200 bytes costs "
        f"{small['put']:.2f} µs, {more:.2f} µs more than the codec alone (goal: "
        f"{SMALL_MAX:g} µs)."
    )
    cells = [
        [
            f"{row['length']:,.0f}",
            f"{row['size']:,.0f}",
            f"{row['beyond']:.2f} µs" + ("" if row["beyond"] <= PUT_MAX else ", **not reached**"),
            f"{row['whole']:.2f} µs",
        ]
        for row in rows
    ]
    name = f"{stem}-values-put.svg"
    curves = [
        _curve(
            "put again", GREEN, [(r["length"], r["beyond"]) for r in rows if r["size"] == 1_000]
        ),
        _curve(
            "encoded whole", GREY, [(r["length"], r["whole"]) for r in rows if r["size"] == 1_000]
        ),
    ]
    title = "µs per message of 1 kB"
    (folder / name).write_text(draw(title, "messages", lambda v: f"{v:g} µs", curves))
    head = ["messages", "bytes each", "put again, per message", "encoded whole, per message"]
    picture = f"![Putting a list that grows: {title}]({name})"
    return ["### Putting a list that grows", "", words, "", picture, "", *table(head, cells), ""]


def _reads(rows: Sequence[dict[str, float]], folder: Path, stem: str) -> list[str]:
    words = (
        "The state of one turn of a run that saved one at every turn (messages of 10 kB). Its own "
        "bytes and those of the few versions that it refers to are read, in as many fetches, "
        "however long the run is. Every hash is checked."
    )
    cells = [
        [
            f"{row['turn']:,.0f}",
            count(row["own_bytes"]),
            f"{row['read_bytes'] / max(1.0, row['own_bytes']):.3f}x",
            f"{row['nodes_beyond']:.0f}",
            f"{row['fetches']:.0f}",
            seconds(row["seconds"]),
        ]
        for row in rows
    ]
    head = ["turn", "its own bytes", "read", "nodes beyond its messages", "fetches", "time"]
    name = f"{stem}-values-read.svg"
    curves = [
        _curve("bytes read", BLUE, [(row["turn"], row["read_bytes"]) for row in rows]),
        _curve("its own bytes", GREY, [(row["turn"], row["own_bytes"]) for row in rows]),
    ]
    (folder / name).write_text(draw("bytes", "turn", count, curves))
    picture = f"![Reading the state of one turn: bytes]({name})"
    return ["### Reading one state back", "", words, "", picture, "", *table(head, cells), ""]


def _curve(name: str, colour: str, points: Sequence[tuple[float, float]]) -> Curve:
    drawn = [Point(size=x, middle=y, least=y, most=y) for x, y in points if y > 0]
    return Curve(name=name, colour=colour, points=drawn)


def _seal(told: dict[str, list[dict[str, float]]]) -> list[str]:
    words = (
        "Effects one after the other on SQLite, alternately without and with a key, in one "
        "process; medians of the rounds (minimum to maximum)."
    )
    cells = []
    for name, rows in told.items():
        figures = [
            f"**{form(median(found))}** ({form(min(found))} to {form(max(found))})"
            for what, form in (("p50", seconds), ("cpu", seconds), ("bytes", count))
            if (found := [row[what] for row in rows])
        ]
        cells.append([name, *figures])
    plain, sealed = (min(row["cpu"] for row in told[name]) for name in ("plain", "sealed"))
    head = ["store", "an effect, p50", "processor time", "bytes"]
    more = seconds(max(0.0, sealed - plain))
    added = f"Sealing adds {more} of processor time to an effect, by the least of the rounds."
    return ["### Sealing", "", words, "", *table(head, cells), "", added, ""]
