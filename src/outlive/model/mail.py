"""Letters that others may post to a run; its driver turns each into events."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from outlive.errors import UsageError
from outlive.model.events import Fault

ID_CHARS_MAX = 200
#: A human's verdict on an effect in doubt.
Verdict = Literal["happened", "not_happened", "fail"]


class Resolve(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A human settles an effect in doubt. ``value`` is JSON: the outcome, if it happened."""

    step: str
    attempt: int
    verdict: Verdict
    value: bytes = b"null"
    #: The seq of the intent that it is about (0: whichever is open). Attempts that were cut off
    #: keep their number, so the number alone does not tell them apart.
    intent: int = 0
    #: Whose word it is, if that is known.
    by: str = ""


class Signal(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A signal or request. The value is what our codec made, or JSON."""

    name: str
    value: bytes
    is_json: bool = False
    by: str = ""


class Answer(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A human's answer to a question, as JSON."""

    question: str
    value: bytes
    by: str = ""


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """A request to stop the run."""

    by: str


class ChildNews(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The end of a child run."""

    child_id: str
    status: str
    value: bytes
    error: Fault | None


class Nudge(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A request to continue the run now: `outlive resume`."""

    why: str


Letter: TypeAlias = Resolve | Nudge | Signal | Answer | Cancel | ChildNews

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Letter)

encode_letter = _encoder.encode
#: Raises if it can't be read. What was posted is read by `journal.mail`, which checks it first.
parse_letter = _decoder.decode


def check_signal_name(name: object, what: str = "a signal's name") -> str:
    """Check the name of a signal."""
    if type(name) is not str or not 1 <= len(name) <= ID_CHARS_MAX or not name.isprintable():
        raise UsageError(f"{what} is a text of 1 to {ID_CHARS_MAX} characters, not {name!r}")
    return name
