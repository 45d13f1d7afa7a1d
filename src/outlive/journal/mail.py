"""Letters as mail: written for one run and id, and believed only there.

What can't be read is handled one way, whatever is wrong with it: it changes nothing, and the event
that takes it out of the mailbox keeps its bytes, its id and the reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from outlive.envelope import SEAL_BROKEN_MAIL, disclose, enclose
from outlive.model.events import (
    Answered,
    CancelRequested,
    Event,
    Forked,
    MailRead,
    SignalReceived,
)
from outlive.model.mail import Letter, encode_letter, parse_letter
from outlive.store import Mail

_UNSEALED = "its seal does not hold: damaged, moved, forged or not sealed"
_UNBOUND = "its checksum does not hold: damaged, moved, or of an earlier format"


class Unreadable(NamedTuple):
    """Mail that is not what somebody posted under this id to this run."""

    why: str
    #: The bytes that were found.
    body: bytes
    #: It is whole, and of a kind that only a later release knows.
    is_newer: bool = False


def write_letter(run_id: str, mail_id: str, letter: Letter) -> bytes:
    """The letter as mail of this id to this run."""
    return enclose(run_id, mail_id, encode_letter(letter))


def read_letter(run_id: str, mail: Mail) -> Letter | Unreadable:
    """What was posted, if it is whole and at its place."""
    body = mail.body
    if type(body) is not bytes or type(mail.mail_id) is not str:
        return Unreadable("its row is damaged", repr(body).encode())
    if body.startswith(SEAL_BROKEN_MAIL):
        return Unreadable(_UNSEALED, body[len(SEAL_BROKEN_MAIL) :])
    raw = body if mail.is_sealed else disclose(run_id, mail.mail_id, body)
    if raw is None:
        return Unreadable(_UNBOUND, body)
    try:
        letter: Letter = parse_letter(raw)
        return letter
    except msgspec.ValidationError as error:
        return Unreadable(f"this release does not know its kind ({error})", body, is_newer=True)
    except (msgspec.MsgspecError, RecursionError) as error:
        return Unreadable(f"it is not a letter ({error})", body)


def mail_ids(events: Iterable[Event]) -> list[str]:
    """Ids of the mail that a run's own events name; a fork has read none of the other run's."""
    found: list[str] = []
    for event in events:
        match event:
            case SignalReceived(signal_id=signal_id):
                found.append(f"signal/{signal_id}")
            case MailRead() | CancelRequested() | Answered():
                found.append(event.mail_id)
            case Forked():
                found.clear()
            case _:
                pass
    return found
