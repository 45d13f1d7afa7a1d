"""What a killed process left behind, read from outside: journals, receipts, acknowledgements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from outlive.errors import OutliveError
from outlive.journal.headers import header_of
from outlive.journal.immediate import run_immediate
from outlive.journal.reader import read_events
from outlive.journal.restored import read_whole
from outlive.model.events import Event
from outlive.model.run import fold
from outlive.ports import Ports
from outlive.store import Found, Query, Store
from outlive.testing.auditor import Receipt
from outlive.testing.crash_child import ACKNOWLEDGED, LEDGER, open_trial_store
from outlive.testing.crash_places import as_it_is
from outlive.testing.ledger import Ledger

#: Who only reads needs no lease.
LEASE_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that an audit looks at."""

    journals: Mapping[str, Sequence[Event]]
    receipts: Sequence[Receipt]
    acknowledged: Mapping[str, int]
    #: What could not even be read, in words.
    damage: Sequence[str] = ()
    #: Heads and headers of all runs.
    found: Sequence[Found] = ()


def collect(folder: Path, url: str) -> Evidence:
    """Read what is in a folder and a store that no process uses any more."""
    journals: dict[str, Sequence[Event]] = {}
    damage: list[str] = []
    store = open_trial_store(url, Ports(), LEASE_SECONDS)
    try:
        found = list(_find(store))
        for each in found:
            damage += _read(store, each.head.run_id, journals)
    finally:
        run_immediate(store.close())
    return Evidence(
        journals=journals,
        receipts=Ledger(folder / LEDGER).receipts(),
        acknowledged=_acknowledged(folder / ACKNOWLEDGED),
        damage=damage,
        found=found,
    )


def snapshot(folder: Path, url: str) -> Mapping[str, Sequence[Event]]:
    """The journals as they are now."""
    with as_it_is(folder, url) as there:
        return collect(folder, there).journals


def _find(store: Store) -> Iterator[Found]:
    for prefix in (None, "key/"):
        after = None
        while True:
            page = run_immediate(store.find(Query(prefix=prefix), after, 1000))
            yield from page.items
            after = page.next
            if after is None:
                break


def _read(store: Store, run_id: str, journals: dict[str, Sequence[Event]]) -> Iterator[str]:
    reading = run_immediate(read_whole(store, run_id))
    if reading is None:
        yield f"run {run_id} is found and can't be read"
        return
    try:
        events = journals[run_id] = read_events(reading)
    except OutliveError as error:
        yield str(error)
        return
    made = header_of(fold(events), reading.header.chapter_link)
    if made != reading.header:
        yield f"run {run_id}: its header is {reading.header}, its journal says {made}"


def _acknowledged(path: Path) -> Mapping[str, int]:
    found: dict[str, int] = {}
    text = path.read_bytes() if path.exists() else b""
    for line in text.split(b"\n")[:-1]:
        run_id, seq = msgspec.json.decode(line, type=tuple[str, int])
        found[run_id] = max(seq, found.get(run_id, 0))
    return found
