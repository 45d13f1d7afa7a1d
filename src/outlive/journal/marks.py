"""Marks: journals of one event that are there to be found, or to be there first.

Whoever creates a mark has it; nobody else can. It is born ended, so it can be deleted as any run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection

from outlive.journal.entries import first_entry
from outlive.journal.headers import key_header
from outlive.model.events import Marked
from outlive.model.ids import OWN_PREFIX, digest
from outlive.store import PAGE_MAX, Entry, Found, Query, Store

TURNS = f"{OWN_PREFIX}turn/"
FORKS = f"{OWN_PREFIX}fork/"
ORPHANS = f"{OWN_PREFIX}orphan/"
#: So many are looked through rather than asked for one by one.
FEW_FORKS = 100


def turn_entry(number: int, worker: str, now: int) -> Entry:
    """A worker's turn to clear away what is old: of those who ask for it, one gets it."""
    return _entry(f"{TURNS}{number}", Marked(now, worker))


def fork_mark(parent: str, fork: str) -> str:
    """The mark that keeps a run as long as its fork is there."""
    return f"{_forks_of(parent)}{digest(fork.encode()).hex()}"


def is_marked_for(journal: str, mark: Marked, parent: str | None) -> bool:
    """Whether a mark speaks of that run; those that are no fork's speak of none."""
    if journal.startswith(FORKS):
        return parent is not None and journal == fork_mark(parent, mark.by)
    return parent is None


def _forks_of(parent: str) -> str:
    return f"{FORKS}{digest(parent.encode()).hex()}/"


def fork_entry(parent: str, fork: str, now: int) -> Entry:
    """Says that a run is forked, before it is."""
    return _entry(fork_mark(parent, fork), Marked(now, fork), parent)


def orphan_entry(family: str, now: int) -> Entry:
    """Says that a family had nodes and no run; since when, if it was not said before."""
    return _entry(f"{ORPHANS}{digest(family.encode()).hex()}", Marked(now, family))


def _entry(journal: str, event: Marked, parent: str | None = None) -> Entry:
    header = key_header(status="mark", ended_at=event.at, parent=parent)
    return first_entry(journal, event, header)


async def find_marks(store: Store, prefix: str, ended_by: int | None) -> AsyncIterator[Found]:
    """The marks that there are."""
    after = None
    while True:
        page = await store.find(Query(prefix=prefix, ended_by=ended_by), after, PAGE_MAX)
        for found in page.items:
            yield found
        after = page.next
        if after is None:
            return


async def forked_among(store: Store, run_ids: Collection[str]) -> set[str]:
    """Those that a fork shares with. Where forks are few, one look does for all."""
    page = await store.find(Query(prefix=FORKS), None, FEW_FORKS)
    if page.next is None:
        return {found.header.parent or "" for found in page.items}.intersection(run_ids)
    forks = {name: await store.find(Query(prefix=_forks_of(name)), None, 1) for name in run_ids}
    return {name for name, found in forks.items() if found.items}


async def drop_mark(store: Store, mark: str, keep_until: int) -> None:
    """It is not needed any more; till then nobody can make it anew."""
    await store.delete(mark, seq=1, digest=b"", keep_until=keep_until)
