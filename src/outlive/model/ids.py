"""Derived names: steps, keys, random numbers, each a function of its place."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import blake2b

from outlive.errors import RunIdRefused

RUN_ID_BYTES_MAX = 512
#: The number of characters of a parent's id with which its children's ids begin.
ID_KEPT = 100
#: The prefix of keys' journals; a run id may not begin with it.
KEY_PREFIX = "key/"
#: The prefix of our own journals.
OWN_PREFIX = "outlive/"
#: Of these, journals of checkpoints.
CHECKPOINTS = "outlive/checkpoints"
#: And journals of cuts.
CUTS = "outlive/cuts/"
KEY_BYTES_MAX = 400
#: The length of a flow's, version's, queue's or key's name: four of them are one index entry, and
#: PostgreSQL has room for 2,704 bytes in it.
NAME_CHARS_MAX = 200
NAME_BYTES_MAX = 600
NAME_RULES = "at most 600 bytes in UTF-8, no NUL, line break or lone surrogate"


def is_text(given: object) -> bool:
    """Whether it is a plain text that can be encoded: no subclass, no lone surrogates."""
    if type(given) is not str:
        return False
    return given.isascii() or not any("\ud800" <= c <= "\udfff" for c in given)


def is_name(given: object) -> bool:
    """Whether it is a text that any store can keep and search for."""
    if type(given) is not str or not is_text(given) or not 0 < len(given) <= NAME_CHARS_MAX:
        return False
    return not any(c in given for c in "\0\n") and len(given.encode()) <= NAME_BYTES_MAX


def check_run_id(run_id: str) -> str:
    """Check a run id: any store can keep it; ids are opaque text, never paths."""
    if type(run_id) is not str or not run_id:
        raise RunIdRefused(f"a run id is a non-empty text, not {run_id!r}")
    try:
        size = len(run_id.encode())
    except UnicodeEncodeError:
        raise RunIdRefused("a run id can't hold a lone surrogate") from None
    if size > RUN_ID_BYTES_MAX:
        raise RunIdRefused(f"a run id has at most {RUN_ID_BYTES_MAX} bytes, this one {size}")
    if "\0" in run_id:
        raise RunIdRefused("a run id can't hold NUL")
    if run_id.startswith(KEY_PREFIX):
        raise RunIdRefused(f"a run id can't begin with {KEY_PREFIX!r}: keys live there")
    if run_id.startswith(OWN_PREFIX):
        raise RunIdRefused(f"a run id can't begin with {OWN_PREFIX!r}: that is ours")
    return run_id


def digest(data: bytes) -> bytes:
    """The digest by which arguments are compared."""
    return blake2b(data, digest_size=16).digest()


def place_of_question(question: str) -> str:
    """The place of a question in the flow: its id, without the number of a changed question."""
    return question.partition("~")[0]


def changed_question(question: str) -> str:
    """The id of a question that replaces this one at its place."""
    place, _, number = question.partition("~")
    return f"{place}~{int(number or 1) + 1}"


def key_journal(key: str) -> str:
    """The journal that names the holder of a user's key."""
    if len(key.encode()) > KEY_BYTES_MAX:
        return KEY_PREFIX + "#" + blake2b(key.encode(), digest_size=32).hexdigest()
    return KEY_PREFIX + key


def is_key_journal(journal: str) -> bool:
    """Whether a journal is a key's."""
    return journal.startswith(KEY_PREFIX)


def is_run(journal: str) -> bool:
    """Whether a journal is a run's."""
    return not journal.startswith((KEY_PREFIX, OWN_PREFIX))


def derived_key(run_id: str, step: str) -> str:
    """The idempotency key of an effect that declares none: the same for every attempt."""
    return blake2b(f"{run_id}\0{step}".encode(), digest_size=16).hexdigest()


def derived_bytes(seed: bytes, place: str) -> bytes:
    """Sixteen bytes that belong to this place in this run, in normal operation as in replay."""
    return blake2b(place.encode(), key=seed, digest_size=16).digest()


def checkpoint_journal(run_id: str) -> str:
    """The journal of a run's checkpoints; the run itself may be unknown to Outlive."""
    check_run_id(run_id)
    if len(run_id.encode()) > KEY_BYTES_MAX:
        return f"{CHECKPOINTS}#{blake2b(run_id.encode(), digest_size=32).hexdigest()}"
    return f"{CHECKPOINTS}/{run_id}"


def family_of(seed: bytes) -> str:
    """A new family; short, because every node carries it."""
    return OWN_PREFIX + urlsafe_b64encode(seed).decode().rstrip("=")


def readers_of(run_id: str) -> str:
    """The name under which readers of a run are woken: no worker has it."""
    return f"readers/{run_id}"
