"""What a store may be asked of a journal that is no run's: a face's thing, at a glance."""

from __future__ import annotations

import msgspec


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """As much of a thing as its header shows; folded from its journal, like everything."""

    #: ms since 1970.
    started_at: int
    family: str
    status: str
    #: Set when it may be deleted.
    ended_at: int | None = None
