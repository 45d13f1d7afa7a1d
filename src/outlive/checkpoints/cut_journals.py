"""Where cuts are kept: a journal each, beside those of the agents.

It holds one snapshot, the cut as a value, whose step says whether it was taken here or is restored
here. It has ended when there is nothing more to be done: at once where the cut was taken, with the
last agent where it is restored. So what is not restored to its end is found without a search.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

import msgspec

from outlive.checkpoints import deciding
from outlive.checkpoints.agent_journals import has_begun
from outlive.checkpoints.codec import decode
from outlive.checkpoints.store import SnapshotStore, draft_of
from outlive.errors import CutRefused, LeaseLost
from outlive.journal.shared import SharedJournal
from outlive.model.checkpoint_events import CheckpointsEnded, OfCheckpoints
from outlive.model.checkpoints import Checkpoints
from outlive.model.ids import CUTS, check_run_id
from outlive.store import PAGE_MAX, Query, Store

T = TypeVar("T")

TAKEN: Final = "taken"
RESTORED: Final = "restored"
#: A name is part of its journal's id.
NAME_BYTES_MAX: Final = 400


def check_name(name: str) -> str:
    """The name itself, if a cut can have it."""
    if len(check_run_id(name).encode()) > NAME_BYTES_MAX:
        raise CutRefused(name[:40] + "...", f"a name has at most {NAME_BYTES_MAX} bytes")
    return name


class CutJournals:
    """The cuts of one store, as values."""

    def __init__(self, store: SnapshotStore) -> None:
        self._journals = store.journals

    async def add(self, name: str, kind: str, value: dict[str, Any]) -> None:
        """Keep a cut.

        Raises:
            LeaseLost: there is one of that name.
        """
        run = self._journals.run(name)
        draft = draft_of(kind, value)

        def decide(fold: Checkpoints) -> Sequence[OfCheckpoints]:
            if has_begun(fold):
                raise LeaseLost(name)
            at = fold.time(run.now)
            ending = [CheckpointsEnded(at, "succeeded")] if kind == TAKEN else []
            return [*run.beginning(fold), msgspec.structs.replace(draft, at=at), *ending]

        await self._call(name, lambda journal: journal.append(decide, _nothing))

    async def end(self, name: str) -> None:
        """Nothing is left to be done for it."""
        now = self._journals.run(name).now

        def decide(fold: Checkpoints) -> Sequence[OfCheckpoints]:
            if not is_open(fold):
                return []
            return [CheckpointsEnded(fold.time(now), "succeeded")]

        await self._call(name, lambda journal: journal.append(decide, _nothing))

    async def find(self, name: str) -> tuple[str, bool, dict[str, Any]] | None:
        """What was kept: its kind, whether there is still something to be done, the value."""

        async def work(journal: SharedJournal[Checkpoints]) -> Any:
            saved, is_left = await journal.look(lambda fold: (fold.latest, is_open(fold)))
            if saved is None:
                return None
            (raw,) = await journal.values([(saved.seq, saved.event.state)])
            return saved.event.step, is_left, decode(raw, name, saved.seq)

        found: tuple[str, bool, dict[str, Any]] | None = await self._call(name, work)
        return found

    async def names(self, *, is_open: bool = False) -> list[str]:
        """Those there are, the oldest first; or only those for which something is to be done."""
        status = "running" if is_open else None

        async def work(store: Store) -> list[str]:
            found: list[str] = []
            after = None
            while True:
                page = await store.find(Query(prefix=CUTS, status=status), after, PAGE_MAX)
                heads = [each.head for each in page.items if each.header.status != "cleared"]
                found += [head.run_id.removeprefix(CUTS) for head in heads]
                after = page.next
                if after is None:
                    return found

        return await self._journals.place.call(work)

    async def delete(self, name: str) -> None:
        """Forget a cut."""
        run = self._journals.run(name)

        async def work(journal: SharedJournal[Checkpoints]) -> None:
            await journal.append(deciding.clear(run), _nothing)
            await journal.delete()

        await self._call(name, work)

    async def _call(
        self,
        name: str,
        work: Callable[[SharedJournal[Checkpoints]], Coroutine[Any, Any, T]],
    ) -> T:
        place, journal = self._journals.place, _journal_of(name)
        return await place.call(
            lambda store: work(SharedJournal(store, journal, Checkpoints, place.ports.entropy))
        )


def is_open(fold: Checkpoints) -> bool:
    """Whether something is left to be done."""
    return fold.brief is not None and fold.brief.status == "running"


def _journal_of(name: str) -> str:
    return CUTS + name


def _nothing(fold: Checkpoints) -> None:
    """What is asked of a journal by those who only append."""
