"""What stands in journals beside those of runs: who holds a key, and marks that are only there.

A mark is a journal of one event whose id says everything: a worker's turn to clear away what is
old, a run that a fork was made of.
"""

from __future__ import annotations

import msgspec


class Fault(msgspec.Struct, frozen=True, array_like=True):
    """An exception as it is recorded: names, texts and plain values, never code."""

    type_name: str
    message: str
    #: The exception's arguments, encoded, where they can be; empty otherwise.
    args: bytes = b""
    #: Where it was raised: the user's frames, with causes and notes; no variables.
    trace: str = ""
    #: Of a declared type that can't be made from its arguments: its attributes, encoded.
    state: bytes = b""


class KeyHeld(msgspec.Struct, frozen=True, array_like=True, tag=50):
    """The first event of a key's own journal: who may use it, for which arguments."""

    run_id: str
    step: str
    digest: bytes


class KeyKept(msgspec.Struct, frozen=True, array_like=True, tag=51):
    """The run that holds a key is about to go: how its effect ended, for those who ask later."""

    #: ms since 1970: the key's window begins here.
    at: int
    value: bytes
    #: Of an effect that ended badly; then ``happened`` says whether it happened all the same.
    error: Fault | None = None
    happened: bool | None = True


class Marked(msgspec.Struct, frozen=True, array_like=True, tag=52):
    """The only event of a journal that is there to be found, or to be there first."""

    #: ms since 1970.
    at: int
    by: str


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """As much of a thing as its header shows; folded from its journal, like everything."""

    #: ms since 1970.
    started_at: int
    family: str
    status: str
    #: Set when it may be deleted.
    ended_at: int | None = None
