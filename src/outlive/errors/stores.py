"""How a store, or the data in it, is not as it should be."""

from __future__ import annotations

from outlive.errors.groups import StoreError


class StoreUnavailable(StoreError):
    """The store can't be opened, locked or reached; the message says what to look at."""


class StoreFailed(StoreError):
    """A write failed; nothing after it was acknowledged. Mend the store and start again."""


class WentBack(StoreFailed):
    """The store has less than it acknowledged; bring the newer data back, or accept the loss.

    A standby that was behind took over, or a backup was restored. Nothing is driven until
    somebody says `outlive accept-loss`: to go on would do again what was done.
    """

    exit_code = 4

    def __init__(self, place: str, run_id: str, known: int, found: int, timeline: int) -> None:
        super().__init__(
            f"{place} went back: run {run_id} was stored up to {known} and now ends at {found}; "
            "a standby that was behind took over, or a backup was restored. Nothing is driven "
            "from there: bring the newer data back, or accept that what is missing is done again: "
            f"`outlive accept-loss --timeline {timeline}`"
        )
        self.place, self.run_id, self.timeline = place, run_id, timeline
        self.known, self.found = known, found


class UnsafeSettings(StoreError):
    """The store would lose acknowledged events with these settings, which the message names."""


class WrongVersion(StoreError):
    """A schema (also of a checkpointed state), record format or codec of another version."""


class IncompatibleCheckpoint(StoreError):
    """A loop's snapshot has a schema that is not this code's, and nothing leads from it to that."""

    def __init__(self, found: object, wanted: object = None, what: str = "the checkpoint") -> None:
        reads = "this code reads another" if wanted is None else f"this code reads {wanted}"
        if isinstance(found, bool) or not isinstance(found, int):
            remedy = f"give it one that is a whole number, not a {type(found).__name__}"
        else:
            remedy = f"give an upcaster from version {found}"
        super().__init__(
            f"{what} has version {found}, {reads}; {remedy}, or go on with the code that wrote it"
        )
        self.found, self.wanted, self.what = found, wanted, what


class WrongKey(StoreError):
    """Data is sealed and no key that was given opens it; give the one that the message names."""

    def __init__(
        self,
        what: str,
        needs: list[str] | None = None,
        given: list[str] | None = None,
    ) -> None:
        self.what, self.needs, self.given = what, sorted(needs or []), list(given or [])
        needed, has = " or ".join(self.needs), ", ".join(self.given)
        super().__init__(
            f"{what} is sealed{f' with key {needed}' if needed else ''}; "
            f"{f'the keys given are {has}' if has else 'no key was given'}: "
            "set OUTLIVE_KEY to the key that it was written with (several: commas between them)"
        )


class Erased(StoreError):
    """The data key of the run's family was dropped; nothing brings back what it sealed."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"run {run_id} was erased: its family's data key is gone, and with it what was sealed"
        )
        self.run_id = run_id


class CorruptRecord(StoreError):
    """A record is damaged, missing or out of place; restore that run from a backup."""

    def __init__(self, run_id: str, seq: int, why: str) -> None:
        super().__init__(f"run {run_id}, seq {seq}: {why}; `outlive verify` lists all damage")
        self.run_id, self.seq, self.why = run_id, seq, why


class BlobMissing(StoreError):
    """A part of a blob is gone or damaged: its family was deleted, or restore it from a backup."""


class CorruptArchive(StoreError):
    """A file of archived runs is damaged, cut, or none at all; take a copy of it."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"archive {path}: {why}")
        self.path, self.why = path, why


class LeaseLost(StoreError):
    """Another worker drives this run now; its outcome comes from the store."""

    def __init__(self, run_id: str, why: str = "is driven by another worker now") -> None:
        super().__init__(f"run {run_id} {why}")
        self.run_id, self.why = run_id, why
