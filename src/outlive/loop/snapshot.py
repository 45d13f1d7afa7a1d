"""A snapshot: a loop at one moment, complete and small; and the conversion of older ones.

It holds the loop's state, not its past, and nothing that belongs into a configuration. Its
version is that of its schema: another version is converted by functions that the loop's author
gave, or refused. Nothing is guessed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from outlive.errors import DefinitionRefused, IncompatibleCheckpoint, ValueRefused

#: By version: converts a snapshot of that version to the next.
Upcasters: TypeAlias = Mapping[int, Callable[[dict[str, Any]], Mapping[str, Any]]]
#: The parts of a loop that a run records, in this order; version and id are the run's own.
RECORDED = ("request", "state", "plan", "cursor", "results", "context", "seq")
#: All parts of a snapshot.
PARTS = ("version", "id", *RECORDED)
_NEEDED = ("version", "request", "state")
_LISTS = (list, tuple, deque, set, frozenset)
_ALL = frozenset(PARTS)
#: The usual type of each part, and others that it may have; unlisted parts may be anything.
_KINDS: Mapping[str, tuple[type, tuple[type, ...], str]] = {
    "id": (str, (str, type(None)), "a text"),
    "plan": (list, _LISTS, "a list"),
    "cursor": (int, (int,), "a number"),
    "results": (list, _LISTS, "a list"),
    "context": (dict, (Mapping, type(None)), "a dict"),
    "seq": (int, (int,), "a number"),
}
_PLAIN = tuple((name, usual) for name, (usual, _, _) in _KINDS.items())


@dataclass(init=False, repr=False, eq=False)
class Snapshot(dict[str, Any]):
    """A loop at one moment: a dict that JSON can write, with its parts as attributes.

    It is also a dataclass: ``dataclasses.asdict`` and ``replace`` take it.
    """

    version: int
    request: Any
    state: str
    plan: list[Any]
    cursor: int
    results: list[Any]
    context: dict[str, Any]
    seq: int
    id: str | None

    def __init__(  # noqa: PLR0913 - the parts of a snapshot
        self,
        version: int,
        request: Any,
        state: str,
        plan: Sequence[Any] = (),
        cursor: int = 0,
        results: Sequence[Any] = (),
        context: Mapping[str, Any] | None = None,
        seq: int = 0,
        id: str | None = None,
    ) -> None:
        super().__init__(
            version=version,
            id=id,
            request=request,
            state=state,
            plan=list(plan),
            cursor=cursor,
            results=list(results),
            context=dict(context or {}),
            seq=seq,
        )

    def __getattr__(self, name: str) -> Any:
        if name in PARTS:
            return self[name]
        raise AttributeError(f"a snapshot has no {name!r}; it has {', '.join(PARTS)}")


def check_upcasters(name: str, version: Any, upcasters: Upcasters) -> tuple[int, ...]:
    """The older versions that can be read.

    Raises:
        DefinitionRefused: the version is invalid, or the upcasters do not lead up to it.
    """
    if type(version) is not int or version < 1:
        raise DefinitionRefused(f"{name}: version is {version!r}; use a whole number of at least 1")
    _check_kinds(name, upcasters)
    older = sorted(upcasters)
    if older != list(range(version - len(older), version)) or (older and older[0] < 1):
        raise DefinitionRefused(
            f"{name}: upcasters are there for versions {older}; they lead from one version to the "
            f"next, up to {version}, without a gap"
        )
    return tuple(older)


def _check_kinds(name: str, upcasters: Any) -> None:
    if not isinstance(upcasters, Mapping) or not all(type(each) is int for each in upcasters):
        raise DefinitionRefused(
            f"{name}: upcasters is {upcasters!r}; it has a function by the version that it reads: "
            "{1: first_to_second}"
        )
    for version, upcast in upcasters.items():
        if not callable(upcast):
            raise DefinitionRefused(
                f"{name}: the upcaster from version {version} is {upcast!r}; it is a function "
                "that takes a snapshot and returns one of the next version"
            )


def up_to_date(
    snapshot: Mapping[str, Any], version: int, upcasters: Upcasters, name: str = "the checkpoint"
) -> Snapshot:
    """Convert a snapshot to this version; its parts are not copied.

    Raises:
        IncompatibleCheckpoint: no upcaster leads from its version to this one.
        ValueRefused: it is not a snapshot.
    """
    _check_parts(snapshot)
    parts = dict(snapshot)
    while type(found := parts["version"]) is not int or found != version:
        upcast = upcasters.get(found) if type(found) is int else None
        if upcast is None:
            raise IncompatibleCheckpoint(found, version, name)
        made: object = upcast(parts)
        if not isinstance(made, Mapping):
            why = f"the upcaster from version {found} returned {type(made).__name__}"
            raise ValueRefused(f"{why}; it returns a snapshot of the next version, a dict")
        parts = {**made, "version": found + 1}
        _check_parts(parts)
    check_types(parts)
    return Snapshot(**parts)


def is_plain(snapshot: Mapping[str, Any], version: int) -> bool:
    """Whether a snapshot needs no conversion: version, parts and their types are as usual."""
    found = snapshot.get("version")
    if type(found) is not int or found != version or snapshot.keys() != _ALL:
        return False
    return all(type(snapshot[name]) is usual for name, usual in _PLAIN)


def _check_parts(snapshot: Mapping[str, Any]) -> None:
    for part in _NEEDED:
        if part not in snapshot:
            raise ValueRefused("a snapshot needs this part", f"$.{part}")
    for part in snapshot:
        if part not in PARTS:
            raise ValueRefused("this is not a part of a snapshot", f"$.{part}")


def check_types(parts: Mapping[str, Any]) -> None:
    """Refuse parts of a wrong type.

    Raises:
        ValueRefused: one is of another type.
    """
    for name, (usual, kinds, what) in _KINDS.items():
        part = parts.get(name, ...)
        if type(part) is usual or part is ...:
            continue
        if not isinstance(part, kinds) or isinstance(part, bool):
            raise ValueRefused(
                f"this part of a snapshot is {what}, not {type(part).__name__}", f"$.{name}"
            )
