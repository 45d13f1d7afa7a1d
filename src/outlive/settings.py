"""Settings from environment variables: one table, read in one place."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass, field, fields
from functools import cache

from outlive.errors import UsageError
from outlive.model.defaults import (
    DRAIN_SECONDS,
    IDLE_SECONDS,
    LEASE_SECONDS,
    LOOP,
    POLL_SECONDS,
    RETAIN_SECONDS,
    STORE_URL,
)

#: The prefix of all variables of Outlive.
PREFIX = "OUTLIVE_"
#: The prefix of variables that only its tests read.
_OF_TESTS = "OUTLIVE_TEST_"
_ABOVE_ZERO = ("OUTLIVE_LEASE_SECONDS", "OUTLIVE_RETAIN_SECONDS")
_SWITCH = {"true": True, "1": True, "yes": True, "on": True} | {
    "false": False, "0": False, "no": False, "off": False,
}  # fmt: skip

logger = logging.getLogger("outlive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the environment can set. Each field names its variable."""

    #: OUTLIVE_STORE: the store's URL; by default a file in the current folder.
    store: str = STORE_URL
    #: OUTLIVE_KEY: what is stored is sealed with this key (`outlive key` makes one). Several, with
    #: commas between them: the first seals what is new, all of them open.
    key: str = field(default="", repr=False)
    #: OUTLIVE_BLOBS: the URL of another store, which keeps blobs (`outlive.Blob`); by default they
    #: are with all else. All who use the store name the same.
    blobs: str = ""
    #: OUTLIVE_LEASE_SECONDS: how long a silent worker keeps its runs; the same for all workers of
    #: a store.
    lease_seconds: float = LEASE_SECONDS
    #: OUTLIVE_POLL_SECONDS: how often a worker looks for work.
    poll_seconds: float = POLL_SECONDS
    #: OUTLIVE_IDLE_SECONDS: a run whose branches all wait for longer than this leaves memory.
    idle_seconds: float = IDLE_SECONDS
    #: OUTLIVE_DRAIN_SECONDS: how long a worker that is told to stop waits for what it has begun,
    #: before it hands over the rest.
    drain_seconds: float = DRAIN_SECONDS
    #: OUTLIVE_LOOP: "auto" is uvloop where it is installed, "asyncio" the standard loop.
    loop: str = LOOP

    #: OUTLIVE_RETENTION: what workers may delete, and when: "completed=30d,failed=90d"; by default
    #: nothing.
    retention: str = ""
    #: OUTLIVE_RETAIN_SECONDS: how often one of the workers looks for what may be deleted.
    retain_seconds: float = RETAIN_SECONDS
    #: OUTLIVE_REDACT: parameters of steps and effects whose arguments are not recorded, with commas
    #: between them.
    redact: str = ""
    #: OUTLIVE_REDACT_PATTERN: a regular expression; what it matches is not recorded.
    redact_pattern: str = ""
    #: OUTLIVE_DURABLE_ENABLED: "false" turns the checkpoints of durable runners off: nothing is
    #: saved, and nothing is found.
    durable_enabled: bool = True
    DURABLE_ENABLED: InitVar[bool | None] = None

    def __post_init__(self, DURABLE_ENABLED: bool | None) -> None:  # noqa: N803 - as MAGSAG has it
        if DURABLE_ENABLED is not None:
            _warn("Settings(DURABLE_ENABLED=...)", "Settings(durable_enabled=...)")
            object.__setattr__(self, "durable_enabled", DURABLE_ENABLED)

    @property
    def idle_ms(self) -> int:
        """``idle_seconds`` in milliseconds, the unit of the journal."""
        return round(self.idle_seconds * 1000)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Read all variables; an invalid value is refused, an unknown variable is logged."""
        given = os.environ if environment is None else environment
        _warn_unknown(given)
        return cls(
            store=given.get("OUTLIVE_STORE") or STORE_URL,
            key=given.get("OUTLIVE_KEY") or "",
            blobs=given.get("OUTLIVE_BLOBS") or "",
            lease_seconds=_seconds(given, "OUTLIVE_LEASE_SECONDS", LEASE_SECONDS),
            poll_seconds=_seconds(given, "OUTLIVE_POLL_SECONDS", POLL_SECONDS),
            idle_seconds=_seconds(given, "OUTLIVE_IDLE_SECONDS", IDLE_SECONDS),
            drain_seconds=_seconds(given, "OUTLIVE_DRAIN_SECONDS", DRAIN_SECONDS),
            loop=_loop(given),
            retention=given.get("OUTLIVE_RETENTION") or "",
            retain_seconds=_seconds(given, "OUTLIVE_RETAIN_SECONDS", RETAIN_SECONDS),
            redact=given.get("OUTLIVE_REDACT") or "",
            redact_pattern=given.get("OUTLIVE_REDACT_PATTERN") or "",
            durable_enabled=_durable(given),
        )


def did_you_mean(word: str, known: Iterable[str], prefix: str = "") -> str:
    """A "did you mean" to append to an error about an unknown word; empty if nothing is similar.

    The ``prefix`` that all words share does not count for similarity.
    """
    from difflib import get_close_matches  # only mistakes need it

    meant = {each.removeprefix(prefix): each for each in sorted(known)}
    close = get_close_matches(word.removeprefix(prefix), meant, n=1)
    return f"; did you mean {meant[close[0]]}?" if close else ""


def _warn_unknown(given: Mapping[str, str]) -> None:
    for name in sorted(given):
        if name.startswith(PREFIX) and not name.startswith(_OF_TESTS):
            tell_unknown(name)


@cache
def tell_unknown(name: str) -> None:
    """Log a variable that has our prefix and is unknown, once."""
    known = {PREFIX + each.name.upper() for each in fields(Settings)}
    if name not in known:
        hint = did_you_mean(name, known, PREFIX) or f"; there are {', '.join(sorted(known))}"
        logger.warning(
            "the environment variable %s is unknown to Outlive and ignored%s", name, hint
        )


def _loop(given: Mapping[str, str]) -> str:
    name = given.get("OUTLIVE_LOOP") or LOOP
    if name not in ("auto", "asyncio"):
        raise UsageError(f"OUTLIVE_LOOP={name!r} is neither auto nor asyncio")
    return name


def _durable(given: Mapping[str, str]) -> bool:
    """Read our variable, or that of MAGSAG's Durable Run if ours is not set."""
    if given.get("OUTLIVE_DURABLE_ENABLED") or not given.get("MAGSAG_DURABLE_ENABLED"):
        return _switch(given, "OUTLIVE_DURABLE_ENABLED")
    _warn("MAGSAG_DURABLE_ENABLED", "OUTLIVE_DURABLE_ENABLED")
    return _switch(given, "MAGSAG_DURABLE_ENABLED")


def _warn(theirs: str, ours: str) -> None:
    warnings.warn(f"{theirs} is read as {ours}; write that instead", UserWarning, stacklevel=4)


def _switch(given: Mapping[str, str], name: str) -> bool:
    text = (given.get(name) or "true").strip().lower()
    if text not in _SWITCH:
        raise UsageError(f"{name}={given[name]!r} is neither true nor false")
    return _SWITCH[text]


def _seconds(given: Mapping[str, str], name: str, default: float) -> float:
    text = given.get(name)
    if not text:
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86400 or (seconds == 0 and name in _ABOVE_ZERO):
        raise UsageError(f"{name}={text!r} is not a number of seconds up to a day")
    return seconds
