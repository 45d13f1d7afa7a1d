"""Retention rules: which runs may be deleted, and when, decided from a run's header alone.

Pure: whether a parent is alive or a fork exists is checked by the caller. Nothing is deleted that
no rule names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from outlive.errors import DefinitionRefused, UsageError
from outlive.model.defaults import ID_WINDOW
from outlive.model.retry import Duration, parse_duration

#: The largest number of newest ended runs of a flow that can be kept whatever their age.
KEEP_LAST_MAX = 100_000
#: The ways a run can end.
_ENDS = ("completed", "failed", "cancelled")
_DURATIONS = (*_ENDS, "ttl", "id_window")
_OF_STORE = ("archive", "id_window")


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """Retention rules: what may be deleted, and when. Whatever is not named is kept for ever.

    A run that is under way is never deleted, nor one whose parent is, or that was forked. The id of
    a deleted run and its keys stay taken for ``id_window``.
    """

    #: The time after its end at which a completed run may be deleted; 0: at once; None: never.
    completed: Duration | None = None
    #: The same for a failed run.
    failed: Duration | None = None
    #: The same for a cancelled run.
    cancelled: Duration | None = None
    #: The number of last ended runs of each flow that are kept, however old.
    keep_last: int = 0
    #: A run under way that wrote nothing for this time is cancelled; this rule deletes nothing.
    ttl: Duration | None = None
    #: Separate rules for some flows, by name; they replace these completely.
    flows: Mapping[str, Retention] = {}
    #: A folder, or the URL of a store: runs are archived there before they are deleted.
    archive: str | None = None
    #: How long ids and keys of deleted runs stay taken.
    id_window: Duration = ID_WINDOW

    def __post_init__(self) -> None:
        ages = (self.completed, self.failed, self.cancelled, self.ttl, self.id_window)
        for age in ages:
            if age is not None:
                parse_duration(age)
        if type(self.keep_last) is not int or not 0 <= self.keep_last <= KEEP_LAST_MAX:
            raise DefinitionRefused(f"Retention: keep_last is a number up to {KEEP_LAST_MAX}")
        if self.archive is not None and type(self.archive) is not str:
            raise DefinitionRefused(
                "Retention: archive is a folder, or the URL of a store, as text"
            )
        if not isinstance(self.flows, Mapping):
            raise DefinitionRefused("Retention: flows has rules by the names of flows: a dict")
        for name, rules in self.flows.items():
            if not isinstance(rules, Retention):
                raise DefinitionRefused(
                    f"Retention: the rules of flow {name!r} are a {type(rules).__name__}; "
                    "write Retention(...)"
                )
            if rules.flows or rules.archive is not None or rules.id_window != ID_WINDOW:
                raise DefinitionRefused(
                    f"Retention: flow {name!r} has rules of its own, but archive, id_window and "
                    "flows are the whole store's: give them outside"
                )

    def rules_for(self, flow: str) -> Retention:
        """The rules that apply to this flow."""
        return self.flows.get(flow, self)

    def age_ms(self, flow: str, status: str) -> int | None:
        """The time after its end at which a run may be deleted; None: never."""
        if status not in _ENDS:
            return None
        age: Duration | None = getattr(self.rules_for(flow), status)
        return None if age is None else _ms(age)

    def ttl_ms(self, flow: str) -> int | None:
        """The time that a run under way may write nothing."""
        ttl = self.rules_for(flow).ttl
        return None if ttl is None else _ms(ttl)

    @property
    def id_window_ms(self) -> int:
        """The time that ids and keys stay taken."""
        return _ms(self.id_window)

    @property
    def youngest_ms(self) -> int | None:
        """The age below which nothing may be deleted; None: nothing ever is."""
        ages = (rules.age_ms("", end) for rules in self._all() for end in _ENDS)
        return min((age for age in ages if age is not None), default=None)

    @property
    def shortest_ttl_ms(self) -> int | None:
        """The shortest time after which a silent run is cancelled, if there is any."""
        ttls = [rules.ttl for rules in self._all() if rules.ttl is not None]
        return min((_ms(ttl) for ttl in ttls), default=None)

    @property
    def keeps_last(self) -> bool:
        """Whether anybody's newest runs are kept."""
        return any(rules.keep_last for rules in self._all())

    def _all(self) -> Iterable[Retention]:
        return (self, *self.flows.values())


def with_own(rules: Retention | None, own: Mapping[str, Retention]) -> Retention | None:
    """Add the rules that flows define; rules given by name take precedence."""
    if not own:
        return rules
    given = rules or Retention()
    return msgspec.structs.replace(given, flows={**own, **given.flows})


def _ms(duration: Duration) -> int:
    return round(parse_duration(duration) * 1000)


def parse_retention(text: str, where: str = "OUTLIVE_RETENTION") -> Retention | None:
    """Parse rules: ``completed=30d,failed=90d,keep_last=100,support.completed=7d``.

    ``where`` names their source in the error. A duration has a unit, except 0.

    Raises:
        UsageError: it can't be understood.
    """
    given: dict[str, dict[str, Any]] = {"": {}}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        flow, _, field = name.rpartition(".")
        known = field in Retention.__struct_fields__ and field != "flows"
        if not equals or not known or not value or (flow and field in _OF_STORE):
            raise UsageError(
                f"{where}: {part!r} is not a rule; write completed=30d, failed=, "
                "cancelled=, ttl=, keep_last=100, archive=, id_window=, or FLOW.completed=7d"
            )
        if value.isdecimal() and field in _DURATIONS and int(value):
            raise UsageError(
                f"{where}: {part!r} has no unit; write {name}={value}d for days, or {name}={value}s"
            )
        is_number = value.isdecimal() or field == "keep_last"
        given.setdefault(flow, {})[field] = _number(value) if is_number else value
    own = given.pop("")
    if not own and not given:
        return None
    try:
        flows = {flow: Retention(**rules) for flow, rules in given.items()}
        return Retention(**own, flows=flows)
    except DefinitionRefused as error:
        raise UsageError(f"{where}: {error}") from None


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else -1
