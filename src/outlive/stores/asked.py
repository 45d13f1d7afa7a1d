"""What stores are asked in the same words, and refuse in the same words."""

from __future__ import annotations

from collections.abc import Sequence

from outlive.errors import UsageError
from outlive.store import DEFAULT_QUEUE, Entry

_PAGE_DIGITS_MAX = 18
_LAST_CHARACTER = "\U0010ffff"


def parse_page(after: str | None) -> int:
    """The number that a page begins after: numbers are given in the order of creation."""
    if after is None:
        return 0
    if not (after.isascii() and after.isdigit() and len(after) <= _PAGE_DIGITS_MAX):
        raise UsageError(f"{after!r} is no page of this store; use the `next` of the page before")
    return int(after)


def check_headers(batch: Sequence[Entry]) -> None:
    """Refuse the whole batch, before anything is touched, if a new run would have no header.

    Or if it would be held at once though it is in a queue: only what waits can have its turn.
    """
    for entry in batch:
        if entry.after:
            continue
        if entry.header is None:
            raise ValueError(f"the entry that creates run {entry.run_id!r} has no header")
        if entry.lease == "take" and entry.header.queue != DEFAULT_QUEUE:
            raise ValueError(f"the entry that creates run {entry.run_id!r} jumps its queue")


def end_of_prefix(prefix: str) -> str:
    """The first text after all that begin with the prefix; empty if there is none."""
    stem = prefix.rstrip(_LAST_CHARACTER)
    if not stem:
        return ""
    following = ord(stem[-1]) + 1
    return stem[:-1] + chr(0xE000 if 0xD800 <= following <= 0xDFFF else following)
