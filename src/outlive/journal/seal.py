"""A seal: authenticated encryption with one data key, bound to the place where a thing belongs.

What is sealed opens only at its own place (run and seq, mail id, node address): swapped, renamed
or cut bytes do not open at all. The nonce is a keyed hash of place and content: the same thing at
the same place looks the same, which a store needs to recognize a repeat, and nothing else does.
A sealed record begins like every record, with a flag set, so that those without a key know it.

    "Ol" format flags suite | id of the data key 8 | nonce 12 | sealed bytes | tag 16
"""

from __future__ import annotations

import base64
from hashlib import blake2b

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV

from outlive.journal.headers import HIDDEN
from outlive.journal.master_keys import KEY_BYTES, NONCE_BYTES, Entropy
from outlive.journal.record import SEALED_BEGIN

_ID_BYTES = 8
_ID_END = len(SEALED_BEGIN) + _ID_BYTES
_NONCE_END = _ID_END + NONCE_BYTES


class Seal:
    """Seals and opens with one data key."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self.id = _derive(secret, b"id")[:_ID_BYTES]
        self._box = AESGCM(_derive(secret, b"box"))
        self._begin = SEALED_BEGIN + self.id
        self._nonces = blake2b(digest_size=NONCE_BYTES, key=_derive(secret, b"nonces"))

    @classmethod
    def new(cls, entropy: Entropy) -> Seal:
        """With a data key of its own."""
        return cls(entropy(KEY_BYTES))

    def close(self, body: bytes, place: bytes) -> bytes:
        """The sealed form of these bytes."""
        hasher = self._nonces.copy()
        hasher.update(len(place).to_bytes(4) + place)
        hasher.update(body)
        nonce = hasher.digest()
        return b"".join((self._begin, nonce, self._box.encrypt(nonce, body, place)))

    def open(self, sealed: bytes, place: bytes) -> bytes | None:
        """The bytes again; None: this is not what was sealed for this place."""
        if not sealed.startswith(self._begin):
            return None
        try:
            return self._box.decrypt(sealed[_ID_END:_NONCE_END], sealed[_NONCE_END:], place)
        except InvalidTag:
            return None


class Veil:
    """Hides what the store must compare: the same text looks the same, and opens with the key."""

    def __init__(self, secret: bytes) -> None:
        self._box = AESSIV(_derive(secret, b"text 1") + _derive(secret, b"text 2"))
        self._links = _derive(secret, b"links")
        self._names = _derive(secret, b"names")
        #: Seals what belongs to no family.
        self.common = Seal(_derive(secret, b"common"))

    def hide(self, text: str, place: str) -> str:
        """Text that only a key opens; none stays none."""
        if not text:
            return text
        sealed = self._box.encrypt(text.encode("utf-8", "surrogatepass"), [place.encode()])
        return HIDDEN + base64.urlsafe_b64encode(sealed).decode()

    def show(self, text: str, place: str) -> str:
        """The text again; what was never hidden is shown as it is."""
        if not text.startswith(HIDDEN):
            return text
        try:
            sealed = base64.urlsafe_b64decode(text[len(HIDDEN) :])
            return self._box.decrypt(sealed, [place.encode()]).decode("utf-8", "surrogatepass")
        except (InvalidTag, ValueError):
            return text

    def mask(self, link: bytes, run_id: str, seq: int) -> bytes:
        """A link that tells nothing of the records behind it; masking twice gives it back."""
        if not link:
            return link
        place = b"%d/%s" % (seq, run_id.encode())
        pad = blake2b(place, digest_size=len(link), key=self._links).digest()
        return bytes(a ^ b for a, b in zip(link, pad, strict=True))

    def digest(self, value: bytes) -> bytes:
        """What stands for a value that is only ever compared."""
        return blake2b(value, digest_size=16, key=self._names).digest()

    def address(self, address: bytes, family: str) -> bytes:
        """What a node is called in the store: its own address would tell what is in it."""
        return blake2b(address + family.encode(), digest_size=32, key=self._names).digest()


def data_key_id(sealed: bytes) -> bytes | None:
    """The id of the data key that something was sealed with; None: it is not sealed."""
    if not sealed.startswith(SEALED_BEGIN):
        return None
    return sealed[len(SEALED_BEGIN) : _ID_END]


def _derive(secret: bytes, purpose: bytes) -> bytes:
    return blake2b(purpose, digest_size=32, key=secret, person=b"outlive seal").digest()
