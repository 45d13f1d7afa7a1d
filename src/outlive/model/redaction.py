"""Redaction: arguments by name and texts by pattern that are never written down.

The rules, as users give them; pure. ``journal/redaction.py`` carries them out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from outlive.errors import DefinitionRefused, UsageError

#: The text that replaces a redacted value in the journal.
MARK: Final = "[redacted]"
#: A shorter text is too common to be searched for elsewhere.
SECRET_CHARS_MIN: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """Values that no run of an app ever records: not in journals, stored values or logs."""

    #: Parameters of steps and effects: their bodies get them, the journal does not.
    names: Sequence[str] = ()
    #: Regular expressions: what they match in any text becomes "[redacted]".
    patterns: Sequence[str | re.Pattern[str]] = ()

    def __post_init__(self) -> None:
        for what, given in (("names", self.names), ("patterns", self.patterns)):
            if isinstance(given, (str, re.Pattern)):
                raise DefinitionRefused(f"Redaction: {what} are several: write ({given!r},)")
            if not isinstance(given, Iterable):
                raise DefinitionRefused(f"Redaction: {what} are several, and {given!r} is not")
        for name in self.names:
            if type(name) is not str or not name.isidentifier():
                raise DefinitionRefused(f"Redaction: {name!r} can't be the name of a parameter")
        for pattern in self.compiled:
            if pattern.search("") is not None:
                shown = pattern.pattern
                raise DefinitionRefused(f"Redaction: {shown!r} matches nothing at all, everywhere")

    @property
    def compiled(self) -> tuple[re.Pattern[str], ...]:
        """The compiled patterns."""
        return tuple(map(_compiled, self.patterns))


def _compiled(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except (re.error, TypeError, RecursionError) as error:
        why = f"Redaction: {pattern!r} is not a regular expression: {error}"
        raise DefinitionRefused(why) from None
    if type(compiled.pattern) is not str:
        raise DefinitionRefused(f"Redaction: {pattern!r} is for bytes; write it as text")
    return compiled


def parse_redaction(names: str, pattern: str) -> Redaction | None:
    """Parse the environment's settings: names separated by commas, one regular expression.

    Raises:
        UsageError: it is invalid; the message names the variable.
    """
    listed = tuple(name.strip() for name in names.split(",") if name.strip())
    if not listed and not pattern:
        return None
    try:
        return Redaction(names=listed, patterns=(pattern,) if pattern else ())
    except DefinitionRefused as refused:
        raise UsageError(f"OUTLIVE_REDACT, OUTLIVE_REDACT_PATTERN: {refused}") from None


def parted_by_marks(text: str) -> re.Pattern[str]:
    """A pattern that matches the text as it may have been before redaction."""
    return re.compile(".*".join(map(re.escape, text.split(MARK))), re.DOTALL)
