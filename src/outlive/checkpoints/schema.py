"""Versions of a state's own schema: older states are converted, or refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from outlive.engine.definitions import registry
from outlive.errors import CorruptRecord, DefinitionRefused, ValueRefused, WrongVersion
from outlive.journal.codec.codec import codec_for
from outlive.journal.codec.parts import Parted
from outlive.model.ids import digest as digest_of

State: TypeAlias = dict[str, Any]
#: By version: the next version, and the function that converts a state to it.
Upcasters: TypeAlias = Mapping[str, tuple[str, Callable[[State], State]]]

#: The field of a state that holds its version.
FIELD = "schema_version"
_EXAMPLE = 'upcasters={"1": ("2", function)}'


class Schema:
    """The version that this code writes, and how it converts older ones. None: any version."""

    def __init__(self, version: str | None, upcasters: Upcasters | None) -> None:
        _check(version, upcasters)
        self._version, self._upcasters = version, dict(upcasters or {})
        if version is None and self._upcasters:
            raise DefinitionRefused("upcasters lead to a schema_version: say which this code has")
        for begin in self._upcasters:
            self._way(begin)

    def _way(self, version: str) -> list[Callable[[State], State]] | None:
        """The conversions from a version to this code's; None: there is no path."""
        way: list[Callable[[State], State]] = []
        while version != self._version:
            if version not in self._upcasters:
                return None
            version, step = self._upcasters[version]
            way.append(step)
            if len(way) > len(self._upcasters):
                raise DefinitionRefused(f"upcasters go round in a circle at version {version!r}")
        return way

    @property
    def reads_all(self) -> bool:
        """Whether states of any version can be read."""
        return self._version is None

    def of(self, state: State) -> str:
        """The version that a state is saved with: its own field, or this code's.

        Raises:
            ValueRefused: its field has another version than this code, or is not a text.
        """
        said = version_in(state)
        if self._version is None:
            return said
        if said and said != self._version:
            raise ValueRefused(f"it says {said!r}, this code's is {self._version!r}", f"$.{FIELD}")
        return self._version

    def read(self, state: State, version: str, where: str) -> State:
        """Convert a state to this code's version.

        Raises:
            WrongVersion: no upcasters lead from its version to this code's.
            DefinitionRefused: an upcaster did not return a state.
        """
        if self._version is None:
            return state
        way = self._way(version)
        if way is None:
            has = f"schema version {version!r}" if version else "no schema version"
            raise WrongVersion(
                f"{where}: its state has {has}, this code reads {self._version!r}; "
                f"give DurableRunner(upcasters={{{version!r}: ({self._version!r}, function)}}), or "
                "use the code that wrote it"
            )
        for step in way:
            state = _stepped(step, state, where)
        if way and FIELD in state:
            state[FIELD] = self._version
        return state


def version_in(state: State) -> str:
    """The version in a state's own field; empty: it has none.

    Raises:
        ValueRefused: it is not a text.
    """
    said = state.get(FIELD) if type(state) is dict else None
    if not isinstance(said, str | None):
        raise ValueRefused(f"a version is a text, not {said!r}; write {str(said)!r}", f"$.{FIELD}")
    return said or ""


def _stepped(step: Callable[[State], State], state: State, where: str) -> State:
    """Apply an upcaster to a state."""
    made: object = step(state)
    if type(made) is not dict:
        name = getattr(step, "__name__", repr(step))
        raise DefinitionRefused(
            f"{where}: upcaster {name} returned {made!r}; it must return the state, a dict"
        )
    return made


def _check(version: object, upcasters: object) -> None:
    """Check that versions are texts."""
    if not isinstance(version, str | None):
        wanted = f", write schema_version={str(version)!r}" if isinstance(version, int) else ""
        raise DefinitionRefused(f"schema_version is a text, not {version!r}{wanted}")
    if not isinstance(upcasters, Mapping | None):
        raise DefinitionRefused(f"upcasters is a dict, {_EXAMPLE}; not {upcasters!r}")
    for begin, way in (upcasters or {}).items():
        match begin, way:
            case str(), (str(), step) if callable(step):
                pass
            case _:
                why = f"upcasters has {begin!r}: {way!r}; write {_EXAMPLE}"
                raise DefinitionRefused(f"{why}: versions are texts")


_codec = codec_for([], registry)
#: An empty dict, encoded.
NOTHING: Final = _codec.write({})


def encode(value: Any, what: str) -> bytes:
    """Encode a state or its metadata; later changes to it have no effect.

    Raises:
        ValueRefused: it is not a dict, or a part of it can't be restored exactly.
    """
    if type(value) is not dict:
        raise ValueRefused(f"{what} is a dict, not {type(value).__name__}")
    return _codec.write(value)


def decode(raw: bytes, run_id: str, seq: int) -> dict[str, Any]:
    """Decode a state; a fresh copy each time."""
    value = _codec.decode(raw)
    if not isinstance(value, dict):
        raise CorruptRecord(run_id, seq, f"its state is a {type(value).__name__}")
    return value


def digest(value: Any) -> str:
    """The digest of a value: the same in every process, whatever the order of its dicts.

    Raises:
        ValueRefused: a part of it could not be saved.
    """
    return digest_of(_codec.ordered(_codec.encode(value))).hex()


def json_size(value: dict[str, Any], raw: bytes) -> int:
    """Bytes of a value as compact JSON in UTF-8; if JSON can't hold it, as it is stored."""
    try:
        return len(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return size_of(raw)


def size_of(raw: bytes) -> int:
    """Bytes of a whole value."""
    if type(raw) is not Parted:
        return len(raw)
    leaves: Any = raw.leaves.values()
    try:
        if all(map(str.isascii, leaves)):
            return len(raw) + sum(map(len, leaves))
    except TypeError:
        pass  # some are bytes
    sizes = (len(leaf) if isinstance(leaf, bytes) else len(leaf.encode()) for leaf in leaves)
    return len(raw) + sum(sizes)
