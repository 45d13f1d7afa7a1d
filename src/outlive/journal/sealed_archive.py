"""Archives of sealed stores: a file's runs are sealed with a key of its own.

The master key wraps that key, which stands at the file's begin; so a file opens with the key that
the store had, in any store, whatever became of the store itself.
"""

from __future__ import annotations

from outlive.journal.archive import WRAPPED_BYTES, Cover
from outlive.journal.master_keys import MasterKeys
from outlive.journal.seal import Seal

_PLACE = b"archive\0"


class SealedCover:
    """The key of one file."""

    def __init__(self, seal: Seal, wrapped: bytes) -> None:
        self._seal, self.wrapped = seal, wrapped

    def close(self, body: bytes, number: int) -> bytes:
        """A run as the file has it."""
        return self._seal.close(body, _place(number))

    def open(self, sealed: bytes, number: int) -> bytes | None:
        """The run again; None: it is not what was written there."""
        return self._seal.open(sealed, _place(number))


class ArchiveKeys:
    """Makes and finds the keys of files."""

    def __init__(self, keys: MasterKeys) -> None:
        self._keys = keys

    def new(self) -> Cover:
        """A key for a file that is to be written."""
        seal = Seal.new(self._keys.entropy)
        wrapped = self._keys.wrap(seal.secret, _PLACE)
        assert len(wrapped) == WRAPPED_BYTES, "keys have one size"
        return SealedCover(seal, wrapped)

    def find(self, wrapped: bytes, what: str) -> Cover:
        """The key of a file that was written.

        Raises:
            WrongKey: another master key wraps it.
        """
        return SealedCover(Seal(self._keys.unwrap([wrapped], _PLACE, what)), wrapped)


def _place(number: int) -> bytes:
    return b"archived run %d" % number
