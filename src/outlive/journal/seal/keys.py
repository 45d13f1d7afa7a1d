"""The master keys: given from outside, never stored; they wrap the keys that seal the data.

A wrapped key says which master key wraps it, so that a wrong one is an error that names both. The
first of several keys wraps what is new; the others only open what was wrapped before.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from hashlib import blake2b

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from outlive.errors import UsageError, WrongKey
from outlive.journal.seal.places import MASTER_ID_BYTES

KEY_BYTES = 32
NONCE_BYTES = 12

Entropy = Callable[[int], bytes]


class MasterKeys:
    """What opens a sealed store."""

    def __init__(self, keys: Sequence[bytes], entropy: Entropy) -> None:
        self._boxes = {_id_of(key): AESGCM(key) for key in keys}
        self._current = _id_of(keys[0])
        self.entropy = entropy

    @classmethod
    def parse(cls, text: str, entropy: Entropy) -> MasterKeys:
        """One key, or several with commas between them, as ``OUTLIVE_KEY`` has them.

        Raises:
            UsageError: one of them is no key; which one, never what it is.
        """
        return cls([_parse(part.strip(), n) for n, part in enumerate(text.split(","), 1)], entropy)

    @property
    def ids(self) -> list[str]:
        """What the keys are called; the one that wraps what is new comes first."""
        return [key_id.hex() for key_id in self._boxes]

    def wrap(self, secret: bytes, place: bytes) -> bytes:
        """Lock a secret away, bound to its place."""
        nonce = self.entropy(NONCE_BYTES)
        return self._current + nonce + self._boxes[self._current].encrypt(nonce, secret, place)

    def is_current(self, wrapped: bytes) -> bool:
        """Whether the first of the keys wraps it."""
        return wrapped[:MASTER_ID_BYTES] == self._current

    def unwrap(self, wrapped: Sequence[bytes], place: bytes, what: str) -> bytes:
        """The secret behind any of these.

        Raises:
            WrongKey: none of the keys opens one of them; the message names both sides.
        """
        for each in wrapped:
            box = self._boxes.get(each[:MASTER_ID_BYTES])
            if box is None:
                continue
            rest = each[MASTER_ID_BYTES:]
            try:
                return box.decrypt(rest[:NONCE_BYTES], rest[NONCE_BYTES:], place)
            except InvalidTag:
                continue
        raise WrongKey(what, [each[:MASTER_ID_BYTES].hex() for each in wrapped], self.ids)


def new_key(entropy: Entropy) -> str:
    """A key of one's own, as ``OUTLIVE_KEY`` takes it."""
    return base64.urlsafe_b64encode(entropy(KEY_BYTES)).decode()


def _id_of(key: bytes) -> bytes:
    return blake2b(key, digest_size=MASTER_ID_BYTES, person=b"outlive key id").digest()


def _parse(text: str, number: int) -> bytes:
    try:
        key = base64.b64decode(text, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise UsageError(
            f"OUTLIVE_KEY: key {number} is not {KEY_BYTES} bytes in base64; `outlive key` makes one"
        )
    return key
