"""Redaction: values and texts are redacted on their way into the journal.

A hider goes through everything that is about to be recorded, texts and values, and replaces what
is named by a mark. Values are changed as bytes, so that no class is needed; where nothing matches,
the same bytes are returned. Arguments that a run's own steps got under a redacted name are
searched for in everything else that the run records.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw
from msgspec.msgpack import Ext
from msgspec.structs import replace

from outlive.errors import ValueRefused
from outlive.journal.codec.parts import LEAF, Parted, whole, with_values
from outlive.journal.codec.scalars import BYTEARRAY, READERS, pack
from outlive.journal.codec.walk import ENUM, FROZENSET, OBJECT, SET
from outlive.model.events import (
    Answered,
    Event,
    Fault,
    Forked,
    MailRead,
    Parked,
    QuestionAsked,
    RunQuarantined,
    RunStarted,
    SignalReceived,
)
from outlive.model.ids import digest
from outlive.model.mail import Answer, Letter, Resolve, Signal
from outlive.model.redaction import MARK, SECRET_CHARS_MIN, Redaction, parted_by_marks

T = TypeVar("T")
#: The number of secrets of recent runs that logs are cleared of.
HEARD_MAX: Final = 1000
_TEXTS: Final[dict[type, str]] = {
    Parked: "reason",
    MailRead: "why",
    QuestionAsked: "text",
    RunQuarantined: "reason",
}
_open = msgspec.msgpack.Decoder().decode


class Hider:
    """Hides what a ``Redaction`` names; one per app, and one per run in memory."""

    def __init__(self, redaction: Redaction | None = None, above: Hider | None = None) -> None:
        self._redaction, self._above = redaction, above
        self.names = frozenset(() if redaction is None else redaction.names)
        self._patterns = () if redaction is None else redaction.compiled
        self._secrets: frozenset[str] = frozenset()
        self._known: re.Pattern[str] | None = None
        #: Of an app: the secrets that its runs learned last.
        self._heard: deque[str] | None = deque(maxlen=HEARD_MAX) if above is None else None
        #: Whether there is anything to look for.
        self.is_on = bool(self._patterns)

    def for_run(self) -> Hider:
        """A hider for one run, which learns secrets of its own."""
        return Hider(self._redaction, self)

    def learn(self, secrets: Iterable[str]) -> None:
        """Redact these texts from now on."""
        fresh = {text for text in secrets if len(text) >= SECRET_CHARS_MIN and text != MARK}
        fresh -= self._secrets
        if not fresh:
            return
        self._secrets |= fresh
        self._known = _any_of(self._secrets)
        self.is_on = True
        if self._above is not None:
            self._above.hear(fresh)

    def hear(self, secrets: Iterable[str]) -> None:
        """Add secrets that a run learned."""
        if self._heard is not None:
            self._heard.extend(secrets)

    # texts and values

    def text(self, text: str) -> str:
        """Redact a text; the same object if nothing matches."""
        return _without(text, self._patterns, self._known) if self.is_on else text

    def said(self, text: str) -> str:
        """Redact a text for the log: with the secrets of all runs."""
        known = _any_of(tuple(self._heard)) if self._heard else None
        return _without(text, self._patterns, known)

    def value(self, raw: bytes) -> bytes:
        """Redact an encoded value."""
        if not self.is_on or not raw:
            return raw
        walk = _Walk(self)
        form = walk.over(_open(raw))
        if type(raw) is Parted:
            for leaf in raw.leaves.values():
                walk.over(leaf)
            # A changed value is joined here, and split again where it is stored.
            return pack(_Walk(self).over(_open(whole(raw)))) if walk.has_changed else raw
        return pack(form) if walk.has_changed else raw

    def json(self, raw: bytes) -> bytes:
        """Redact a value that somebody wrote as JSON."""
        if not self.is_on or not raw:
            return raw
        walk = _Walk(self)
        try:
            changed = walk.over(msgspec.json.decode(raw))
        except msgspec.MsgspecError:
            return self.text(_as_text(raw)).encode("utf-8", "surrogateescape")
        return msgspec.json.encode(changed) if walk.has_changed else raw

    # what is written

    def event(self, event: Event) -> Event:
        """Redact an event."""
        if not self.is_on:
            return event
        changed: Any = with_values(event, self.value)
        fields: dict[str, Any] = {}
        name = _TEXTS.get(type(event))
        if name is not None:
            fields[name] = self.text(getattr(event, name))
        elif isinstance(event, (Answered, Forked)) or _is_json(event):
            fields["value"] = self.json(getattr(event, "value", b""))
        fault = getattr(event, "error", None)
        if fault is not None:
            fields["error"] = self.fault(fault)
        made: Event = replace(changed, **fields) if fields else changed
        return made

    def fault(self, fault: Fault) -> Fault:
        """The record of an exception."""
        return replace(
            fault,
            message=self.text(fault.message),
            args=self.value(fault.args),
            trace=self.text(fault.trace),
            state=self.value(fault.state),
        )

    def start(self, start: RunStarted) -> RunStarted:
        """Redact a run's first event: later starts are compared with the redacted arguments."""
        if not self.is_on:
            return start
        args = self.value(start.args)
        tags = {name: self.text(value) for name, value in start.tags.items()}
        pins = {name: self.text(value) for name, value in start.pins.items()}
        same = start.digest if args is start.args else digest(args)
        return replace(start, args=args, digest=same, tags=tags, pins=pins)

    def letter(self, letter: Letter) -> Letter:
        """Redact mail before it is posted."""
        if isinstance(letter, Signal) and not letter.is_json:
            return replace(letter, value=self.value(letter.value))
        if isinstance(letter, (Signal, Answer, Resolve)):
            return replace(letter, value=self.json(letter.value))
        return letter

    def check_run(self, flow: str, args: bytes) -> None:
        """Check that no argument of a run has a redacted name: the run must get them again.

        Raises:
            ValueRefused: one has such a name.
        """
        if not self.names:
            return
        given = _open(args)
        given = given[1] if isinstance(given, list) else given
        for name in sorted(self.names & set(given)):
            raise ValueRefused(
                f"argument {name!r} of flow {flow} is redacted, but a run is resumed with the "
                "arguments in its journal; pass what the secret is called, and read it in a step"
            )


class LogFilter(logging.Filter):
    """A logging filter that redacts records.

    For a sealed store no text of a user's error is logged, nor a traceback, whose last line has it.
    A record that repeats such a text gives its replacement with ``extra={"sealed_as": ...}``.
    """

    def __init__(self, hider: Hider, *, is_sealed: bool = False) -> None:
        super().__init__()
        self._hider, self._is_sealed = hider, is_sealed

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, redacted."""
        if self._is_sealed:
            _seal(record)
        text = record.getMessage()
        clear = self._hider.said(text)
        if clear != text:
            record.msg, record.args = clear, ()
        if record.exc_info:
            told = logging.Formatter().formatException(record.exc_info)
            clear = self._hider.said(told)
            if clear != told:
                record.exc_text, record.exc_info = clear, None
        return True


def _seal(record: logging.LogRecord) -> None:
    text = getattr(record, "sealed_as", None)
    if text is None and not record.exc_info:
        return
    error = record.exc_info[1] if record.exc_info else None
    kind = "" if error is None else f" ({type(error).__qualname__}; its text is sealed)"
    record.msg, record.args = (record.getMessage() if text is None else text) + kind, ()
    record.exc_info = record.exc_text = None


class _Walk:
    """One walk over one value, in msgpack's or JSON's types."""

    def __init__(self, hider: Hider) -> None:
        self._hider = hider
        self.has_changed = False

    def over(self, tree: Any) -> Any:
        kind = type(tree)
        if kind is str:
            return self._noted(tree, self._hider.text(tree))
        if kind is bytes:
            return self._noted(tree, self._bytes(tree))
        if kind is list:
            return [self.over(each) for each in tree]
        if kind is dict:
            return self._dict(tree)
        return self._tagged(tree) if kind is Ext else tree

    def _noted(self, before: T, after: T) -> T:
        if before == after:
            return before
        self.has_changed = True
        return after

    def _bytes(self, data: bytes) -> bytes:
        return self._hider.text(_as_text(data)).encode("utf-8", "surrogateescape")

    def _dict(self, tree: dict[Any, Any]) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        for key, value in tree.items():
            shown = self.over(key)
            while shown is not key and shown in made:  # two keys of which nothing else is left
                shown += "'" if type(shown) is str else b"'"
            made[shown] = self.over(value)
        return made

    def _tagged(self, tree: Ext) -> Ext:
        code = tree.code
        if code == BYTEARRAY:
            return Ext(code, self.over(bytes(tree.data)))
        if code in READERS or code in (LEAF, ENUM):
            return tree
        parts = _open(bytes(tree.data))
        if code == OBJECT:  # its class and the names of its fields are the program's
            fields = {name: self.over(value) for name, value in parts[2].items()}
            parts = [*parts[:2], fields, *parts[3:]]
        else:
            parts = self.over(parts)
        if code in (SET, FROZENSET):  # ordered by their elements' bytes
            parts = [Raw(each) for each in sorted(set(map(pack, parts)))]
        return Ext(code, pack(parts))


def _as_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _is_json(event: Event) -> bool:
    return isinstance(event, SignalReceived) and event.is_json


def _any_of(secrets: Iterable[str]) -> re.Pattern[str]:
    """Sort the longest first: one may contain another."""
    return re.compile("|".join(map(re.escape, sorted(secrets, key=len, reverse=True))))


def _without(
    text: str, patterns: tuple[re.Pattern[str], ...], known: re.Pattern[str] | None
) -> str:
    for pattern in patterns if known is None else (known, *patterns):
        if MARK in text:  # what is a mark already stays one
            text = MARK.join(pattern.sub(MARK, part) for part in text.split(MARK))
        else:
            text = pattern.sub(MARK, text)
    return text


def same_but_for_marks(a: bytes, b: bytes) -> bool:
    """Whether two values may be equal, where redacted parts match anything.

    Rules change while runs are under way: values recorded under other rules still match.
    """
    a, b = whole(a), whole(b)
    mark = MARK.encode()
    return (mark in a or mark in b) and _may_be_same(_open(a), _open(b))


def same_text(a: str, b: str) -> bool:
    """Whether two texts are equal, where redacted parts match anything."""
    return _may_be_same(a, b)


def _may_be_same(a: Any, b: Any) -> bool:
    if a == MARK or b == MARK:
        return True
    kind = type(a)
    if kind is not type(b):
        return False
    if kind is bytes:
        return _may_be_same(_as_text(a), _as_text(b))
    if kind is str:
        return a == b or any(_fits(*pair) for pair in ((a, b), (b, a)))
    if kind is dict:
        return a.keys() == b.keys() and all(_may_be_same(a[key], b[key]) for key in a)
    if kind is list:
        return len(a) == len(b) and all(map(_may_be_same, a, b))
    if kind is Ext and a.code == b.code == BYTEARRAY:
        return _may_be_same(bytes(a.data), bytes(b.data))
    if kind is Ext and a.code == b.code and a.code not in READERS and a.code != LEAF:
        return _may_be_same(_open(bytes(a.data)), _open(bytes(b.data)))
    is_same: bool = a == b
    return is_same


def _fits(marked: str, text: str) -> bool:
    return MARK in marked and parted_by_marks(marked).fullmatch(text) is not None
