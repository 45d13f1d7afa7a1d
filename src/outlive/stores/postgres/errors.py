"""What PostgreSQL's errors mean for a store, in words that say what to do."""

from __future__ import annotations

from outlive.errors import StoreError, StoreFailed, StoreUnavailable, UnsafeSettings

READ_ONLY = "25006"
UNDEFINED_TABLE, UNDEFINED_FUNCTION, UNDEFINED_SCHEMA = "42P01", "42883", "3F000"
MISSING = frozenset({UNDEFINED_TABLE, UNDEFINED_FUNCTION, UNDEFINED_SCHEMA})

#: The server can't do it now; nothing of it was done, and the same again may work.
_PASSING = frozenset(
    {
        "40001",  # serialization_failure
        "40P01",  # deadlock_detected
        "55P03",  # lock_not_available
        "53300",  # too_many_connections
        "57014",  # query_canceled: its time limit passed, or somebody cancelled it
        "57P01",  # admin_shutdown
        "57P02",  # crash_shutdown
        "57P03",  # cannot_connect_now
        "57P05",  # idle_session_timeout
        "25P03",  # idle_in_transaction_session_timeout
        READ_ONLY,  # it has become a standby
    }
)
#: Those of them after which the connection is as good as before.
_OF_THE_STATEMENT = frozenset({"40001", "40P01", "55P03", "57014"})
_CONNECTION = "08"
_DUPLICATE = "23505"
_DISK_FULL = "53100"
_RIGHTS = "42501"
#: What the look at the timeline raises through a pooler if it is another one.
OTHER_TIMELINE = "22012"


class Unreachable(Exception):
    """The connection is lost, or was never had: nobody knows what became of what was sent."""


class Moved(Exception):
    """The server is on another timeline than the one that was looked at: nothing was sent."""


class ServerRefused(Exception):
    """The server refused a statement; nothing of it was done."""

    def __init__(self, state: str, message: str) -> None:
        super().__init__(f"{message} ({state})")
        self.state, self.message = state, message

    @property
    def is_passing(self) -> bool:
        """The same statement may be accepted later, perhaps by another server."""
        return self.state in _PASSING or self.state.startswith(_CONNECTION)

    @property
    def is_of_server(self) -> bool:
        """Not this statement is at fault but the server, or the way to it."""
        return self.is_passing and self.state not in _OF_THE_STATEMENT


def translate(error: ServerRefused, place: str) -> StoreError:
    """The error of a verb, as the seam has it."""
    if error.state == _DISK_FULL:
        return StoreFailed(f"{place}: the server's disk is full; make room and start again")
    if error.state == _RIGHTS:
        return StoreUnavailable(f"{place}: {error.message}; grant what is missing to this role")
    if error.state in MISSING:
        return StoreFailed(f"{place}: {error.message}; somebody removed a part of the schema")
    return StoreFailed(f"{place}: {error}; nothing after this was stored")


def is_duplicate(error: StoreError) -> bool:
    """Whether the server refused a row because there is one of that key."""
    return isinstance(error.__cause__, ServerRefused) and error.__cause__.state == _DUPLICATE


def gone(place: str, error: Exception, seconds: float) -> StoreFailed:
    """A server that did not come back in time."""
    return StoreFailed(
        f"{place} could not be reached for {seconds:g} s ({error}); what was not acknowledged may "
        "or may not be stored: whoever goes on looks first"
    )


def unsafe(place: str, problems: list[str]) -> UnsafeSettings:
    """Settings with which acknowledged events would be lost."""
    return UnsafeSettings(
        f"{place} would lose acknowledged events: {', '.join(problems)}; change that, or add "
        "unsafe=yes to the URL if it may"
    )
