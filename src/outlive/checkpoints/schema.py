"""Versions of a state's own schema: states of an older one are brought up to date, or refused."""

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
#: By version: the next one, and how a state gets there.
Upcasters: TypeAlias = Mapping[str, tuple[str, Callable[[State], State]]]

#: Where a state says which version it has.
FIELD = "schema_version"
_EXAMPLE = 'upcasters={"1": ("2", function)}'


class Schema:
    """The version that this code writes, and how it reads older ones. None: it does not care."""

    def __init__(self, version: str | None, upcasters: Upcasters | None) -> None:
        _check(version, upcasters)
        self._version, self._upcasters = version, dict(upcasters or {})
        if version is None and self._upcasters:
            raise DefinitionRefused("upcasters lead to a schema_version: say which this code has")
        for begin in self._upcasters:
            self._way(begin)

    def _way(self, version: str) -> list[Callable[[State], State]] | None:
        """The steps from a version to this code's; None: there is no way."""
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
        """Whether states of any version are as good."""
        return self._version is None

    def of(self, state: State) -> str:
        """The version that a state is saved with: its own word, or this code's.

        Raises:
            ValueRefused: it says another version than this code's, or one that is no text.
        """
        said = version_in(state)
        if self._version is None:
            return said
        if said and said != self._version:
            raise ValueRefused(f"it says {said!r}, this code's is {self._version!r}", f"$.{FIELD}")
        return self._version

    def read(self, state: State, version: str, where: str) -> State:
        """The state as this code has it.

        Raises:
            WrongVersion: there is no way from its version to this code's.
            DefinitionRefused: an upcaster returned no state.
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
    """The version that a state says it has; empty: it says none.

    Raises:
        ValueRefused: that is no text.
    """
    said = state.get(FIELD) if type(state) is dict else None
    if not isinstance(said, str | None):
        raise ValueRefused(f"a version is a text, not {said!r}; write {str(said)!r}", f"$.{FIELD}")
    return said or ""


def _stepped(step: Callable[[State], State], state: State, where: str) -> State:
    """What an upcaster makes of a state."""
    made: object = step(state)
    if type(made) is not dict:
        name = getattr(step, "__name__", repr(step))
        raise DefinitionRefused(
            f"{where}: upcaster {name} returned {made!r}; let it return the state, which is a dict"
        )
    return made


def _check(version: object, upcasters: object) -> None:
    """That versions are texts, as they are written."""
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
#: A dict without anything in it.
NOTHING: Final = _codec.write({})


def encode(value: Any, what: str) -> bytes:
    """A state or its metadata as it is now; what becomes of it later changes nothing.

    Raises:
        ValueRefused: it is no dict, or a part of it would not come back as it is.
    """
    if type(value) is not dict:
        raise ValueRefused(f"{what} is a dict, not {type(value).__name__}")
    return _codec.write(value)


def decode(raw: bytes, run_id: str, seq: int) -> dict[str, Any]:
    """A copy of its own."""
    value = _codec.decode(raw)
    if not isinstance(value, dict):
        raise CorruptRecord(run_id, seq, f"its state is a {type(value).__name__}")
    return value


def digest(value: Any) -> str:
    """What a value is compared by: the same in every process, whatever the order of its dicts.

    Raises:
        ValueRefused: a part of it could not be saved.
    """
    return digest_of(_codec.ordered(_codec.encode(value))).hex()


def json_size(value: dict[str, Any], raw: bytes) -> int:
    """Bytes of a value as compact JSON in UTF-8; where JSON can't have it, as it is stored."""
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
