"""Events of journals beside those of runs: holders of keys, and marks.

A mark is a journal of one event whose id holds all information: a worker's turn to collect
garbage, a run that was forked.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Fault(msgspec.Struct, frozen=True, array_like=True):
    """An exception as it is recorded: names, texts and plain values, never code."""

    type_name: str
    message: str
    #: The exception's arguments, encoded, where they can be; empty otherwise.
    args: bytes = b""
    #: The traceback: the user's frames, with causes and notes; no variables.
    trace: str = ""
    #: Of a declared type that can't be made from its arguments: its attributes, encoded.
    state: bytes = b""


class KeyHeld(msgspec.Struct, frozen=True, array_like=True, tag=50):
    """The first event of a key's own journal: its holder, and the arguments it is for."""

    run_id: str
    step: str
    digest: bytes


class KeyKept(msgspec.Struct, frozen=True, array_like=True, tag=51):
    """The run that holds a key is about to be deleted: the end of its effect, for later callers."""

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
    """The summary of a journal for its header; folded from the journal."""

    #: ms since 1970.
    started_at: int
    family: str
    status: str
    #: Set when it may be deleted, or to the instant from which on it may be.
    ended_at: int | None = None
    #: When somebody has to look at it; such a journal is found by ``claim``, under its kind.
    wake_at: int | None = None
    tags: Mapping[str, str] = {}
    #: The kind of journal; in its header it stands for a version, of no flow.
    kind: str = ""
