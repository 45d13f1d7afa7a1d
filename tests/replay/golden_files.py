"""Golden journals as files: the records' own bytes, what came out, and every id in them."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outlive.journal.reader import read_events
from outlive.model.events import Event
from outlive.stores.types import Head, Header, Reading, StoredRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """A run that was: its journal and its outcome."""

    run_id: str
    flow: str
    python: str
    outcome: list[Any]
    ids: list[str]
    #: (seq of the first event, the record's bytes)
    records: list[tuple[int, bytes]]
    link: bytes
    seq: int

    def events(self) -> list[Event]:
        """Every event, each record verified in its place."""
        head = Head(run_id=self.run_id, seq=self.seq, epoch=1, link=self.link)
        header = Header(
            flow=self.flow, version="1", format=1, status="completed", family="", started_at=0
        )
        records = [StoredRecord(seq, body) for seq, body in self.records]
        return read_events(Reading(head=head, header=header, records=records, mail=[]))


def ids_of(events: list[Event]) -> list[str]:
    """The ids of steps and timers, in the order of the journal."""
    found = [getattr(event, "step", getattr(event, "timer", None)) for event in events]
    return [each for each in found if each is not None]


def save(folder: Path, golden: Golden) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    told = {
        "run_id": golden.run_id,
        "flow": golden.flow,
        "python": golden.python,
        "outcome": golden.outcome,
        "ids": golden.ids,
        "seq": golden.seq,
        "link": golden.link.hex(),
        "records": [[seq, b64encode(body).decode()] for seq, body in golden.records],
    }
    (folder / f"{golden.run_id}.json").write_text(json.dumps(told, indent=1) + "\n")


def load(folder: Path) -> Iterator[Golden]:
    for path in sorted(folder.glob("*.json")):
        told = json.loads(path.read_text())
        told["link"] = bytes.fromhex(told["link"])
        told["records"] = [(seq, b64decode(body)) for seq, body in told["records"]]
        yield Golden(**told)
