"""A sealed store in a simulation: the seal stands above the line, as it does in real life.

What crosses the line is unreadable, also to those who watch it. So whoever seals leaves a note of
what it sealed for them; nobody else gets to see it.
"""

from __future__ import annotations

from outlive.journal.immediate import run_immediate
from outlive.journal.master_keys import KEY_BYTES, MasterKeys
from outlive.journal.seal import Veil
from outlive.journal.sealed_extras import SealedClearing
from outlive.journal.sealed_rows import shown_id
from outlive.store import Entry
from outlive.stores.memory import MemoryStore
from outlive.testing.sim_nature import Nature
from outlive.testing.sim_store import SimStore


class SimSealed(SealedClearing):
    """The sealed store of one process, with keys at hand of its own."""

    def __init__(self, line: SimStore, keys: MasterKeys) -> None:
        super().__init__(line, keys)
        self._line = line

    async def _close_entry(self, entry: Entry, veil: Veil) -> Entry:
        closed = await super()._close_entry(entry, veil)
        self._line.entries[closed.record] = entry
        return closed

    async def _close_mail(self, run_id: str, mail_id: str, body: bytes) -> bytes:
        closed = await super()._close_mail(run_id, mail_id, body)
        self._line.letters[closed] = body
        return closed


class SimSeal:
    """What seals the store of one simulation."""

    def __init__(self, disk: MemoryStore, nature: Nature) -> None:
        self._keys = MasterKeys([nature.entropy(KEY_BYTES)], nature.entropy)
        #: The disk as those see it who have the key and are no process.
        self.view = SealedClearing(disk, self._keys)
        self._veil = run_immediate(self.view.keyring.veil())

    def over(self, line: SimStore) -> SimSealed:
        """The store as a process has it that reaches the disk by this line."""
        line.view, line.shown = self.view, self._shown
        return SimSealed(line, self._keys)

    def _shown(self, run_id: str) -> str:
        return shown_id(run_id, self._veil)
