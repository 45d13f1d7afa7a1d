"""The envelope of a letter: a checksum over what it says, to which run, and under which id.

    "Om" format flags | digest 16 | letter

A letter whose bytes changed, or that was moved to another run or id, does not open. The function
is pure and stands below the stores, so that a schema step can put the letters of an earlier release
into envelopes inside its own transaction; no store looks into one. A sealed letter needs none: its
seal is bound to the same place.
"""

from __future__ import annotations

from hashlib import blake2b

_FORMAT = 1
_BEGIN = b"Om" + bytes((_FORMAT, 0))
_DIGEST_END = len(_BEGIN) + 16
#: How everything begins that is in an envelope or sealed; a bare letter is a short msgpack array.
_COVERED = b"O"
#: How a sealed outcome begins; alone, the first byte may be a number that a step returned.
_SEALED_BEGIN = b"Ol"
_SEQ_BYTES = 8


def enclose(run_id: str, mail_id: str, letter: bytes) -> bytes:
    """The letter in its envelope."""
    return b"".join((_BEGIN, _digest(run_id, mail_id, letter), letter))


def disclose(run_id: str, mail_id: str, enclosed: bytes) -> bytes | None:
    """The letter again; None: this is not what was enclosed for this run and id."""
    letter = enclosed[_DIGEST_END:]
    if not enclosed.startswith(_BEGIN):
        return None
    is_whole = enclosed[len(_BEGIN) : _DIGEST_END] == _digest(run_id, mail_id, letter)
    return letter if is_whole else None


def bare(enclosed: bytes) -> bytes:
    """The letter of an envelope that was just made, for who binds it to its place by a seal."""
    return enclosed[_DIGEST_END:] if enclosed.startswith(_BEGIN) else enclosed


def enclose_old(run_id: str, mail_id: str, body: bytes) -> bytes:
    """A letter as schemas before this envelope had it, in one; a sealed letter stays as it is."""
    return body if body.startswith(_COVERED) else enclose(run_id, mail_id, body)


def enclose_outcome(run_id: str, step: str, seq: int, value: bytes) -> bytes:
    """The outcome of a transactional step, bound to its run, its step and the attempt's intent."""
    return enclose(run_id, f"outcome/{step}", seq.to_bytes(8) + value)


def disclose_outcome(run_id: str, step: str, enclosed: bytes) -> tuple[int, bytes] | None:
    """The seq of the attempt's intent, and the value; None: this step of this run left no such."""
    found = disclose(run_id, f"outcome/{step}", enclosed)
    if found is None or len(found) < _SEQ_BYTES:
        return None
    return int.from_bytes(found[:_SEQ_BYTES]), found[_SEQ_BYTES:]


def enclose_old_outcome(run_id: str, step: str, seq: int, body: bytes) -> bytes:
    """An outcome from before there were envelopes, in one; what is sealed or in one stays."""
    is_covered = body.startswith((_BEGIN[:2], _SEALED_BEGIN))
    return body if is_covered else enclose_outcome(run_id, step, seq, body)


def _digest(run_id: str, mail_id: str, letter: bytes) -> bytes:
    run, mail = run_id.encode("utf-8", "surrogatepass"), mail_id.encode("utf-8", "surrogatepass")
    place = b"%d %d " % (len(run), len(mail)) + run + mail
    return blake2b(_BEGIN + place + letter, digest_size=16, person=b"outlive mail").digest()
