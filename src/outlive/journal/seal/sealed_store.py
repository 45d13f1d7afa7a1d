"""Any store, sealed: what goes through here is unreadable below, and the same again above.

It stands at the seam, so everything above it works as on a store without a key, and every store
below can be sealed. Records, mail and nodes are sealed with the data key of their family; tag
values and reasons with the store's secret, so that they can still be asked for. What stays readable
is what a store needs to work: ids of runs, names of flows, versions, statuses, times, sizes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeVar, overload

from msgspec.structs import replace

from outlive.envelope import bare, enclose_old_outcome
from outlive.errors import CorruptRecord, Erased, WrongKey
from outlive.journal.lane import run_immediate
from outlive.journal.record import SEAL_BROKEN, SEAL_ERASED
from outlive.journal.seal.keys import MasterKeys
from outlive.journal.seal.seal import (
    SEALED_FORMAT,
    Keyring,
    Seal,
    Veil,
    close_node,
    count_hidden,
    data_key_id,
    find_hidden,
    hide_header,
    is_sealed,
    mail_place,
    open_node,
    record_place,
    show_head,
    show_header,
    stored_id,
)
from outlive.model.defaults import COUNTED_MAX, FIND_LIMIT
from outlive.stores.seam import Store
from outlive.stores.transactions import (
    AsyncTransaction,
    Attempt,
    KeptOutcome,
    Transaction,
    Transactional,
    cannot_write_rows,
)
from outlive.stores.types import (
    LAST_CHAPTER,
    Answers,
    Changes,
    Claims,
    Conflict,
    Count,
    Deletion,
    Entry,
    Found,
    Head,
    Header,
    Health,
    Mail,
    Node,
    Offer,
    Page,
    Posted,
    Posting,
    Query,
    Reading,
    Statement,
    StoredRecord,
    Wanted,
)

T = TypeVar("T")
logger = logging.getLogger("outlive")

#: Runs and families whose keys are kept at hand.
_UNSEALED = "its seal does not hold: damaged, moved, forged or not sealed"
_KEPT_MAX = 100_000


class Sealing(NamedTuple):
    """What a run is sealed with (None: it was begun without a key), and its family."""

    seal: Seal | None
    family: str


class SealedStore:
    """The verbs of a store, each with what it carries sealed."""

    def __init__(self, store: Store, keys: MasterKeys) -> None:
        #: The store that sees nothing.
        self.below = store
        self.keys = keys
        self.keyring = Keyring(store, keys)
        self._runs: dict[str, Sealing] = {}
        #: Runs that are begun here and not yet acknowledged, and the node of a key that is new.
        self._beginning: dict[str, tuple[Sealing, tuple[Node, ...]]] = {}
        #: By family: what seals the runs that join it.
        self._families: dict[str, Seal] = {}
        self._lock = threading.Lock()
        self.clock, self.threads, self.watchable = store.clock, store.threads, store.watchable
        self.transactions: Transactional | None = None
        if store.transactions is not None:
            self.transactions = SealedTransactions(self, store.transactions)
        # Names of workers, queues and families stay readable: nothing is sealed in these.
        self.beat, self.release, self.standing = store.beat, store.release, store.standing
        self.workers = store.workers
        self.set_queue, self.find_queue = store.set_queue, store.find_queue
        self.queues = store.queues
        self.families, self.without_runs = store.families, store.without_runs
        self.loss, self.accept_loss, self.close = store.loss, store.accept_loss, store.close

    # ------------------------------------------------------------------ journals

    @overload
    async def commit(self, batch: Sequence[Entry]) -> Answers: ...
    @overload
    async def commit(self, batch: Sequence[Entry], *, wait: bool) -> Answers | None: ...
    async def commit(self, batch: Sequence[Entry], *, wait: bool = True) -> Answers | None:
        veil = await self.keyring.veil()
        sealed = [await self.close_entry(entry, veil) for entry in batch]
        answers = await self.below.commit(sealed, wait=wait)
        if answers is not None:
            self._heard(sealed, answers)
        return answers

    async def commit_together(self, batch: Sequence[Entry]) -> Answers:
        veil = await self.keyring.veil()
        sealed = [await self.close_entry(entry, veil) for entry in batch]
        answers = await self.below.commit_together(sealed)
        none = [Conflict(seq=0, epoch=0)] * len(answers)
        self._heard(sealed, none if any(answers) else answers)
        return answers

    async def close_entry(self, entry: Entry, veil: Veil) -> Entry:
        """The entry as it is stored."""
        run_id = await self.place_of(entry.run_id)
        (seal, family), keys = await self._sealing_for(entry, run_id, veil)
        if seal is None:
            return entry
        header = entry.header
        return replace(
            entry,
            run_id=run_id,
            record=seal.close(entry.record, record_place(run_id, entry.after + 1)),
            link=veil.mask(entry.link, run_id, entry.last),
            header=None if header is None else hide_header(header, run_id, veil),
            nodes=keys + tuple(close_node(seal, family, node, veil) for node in entry.nodes),
        )

    async def close_enlisted(self, entry: Entry) -> Entry:
        """The entry as it is stored; whether the run comes to be is up to the user."""
        sealed = await self.close_entry(entry, await self.keyring.veil())
        self._beginning.pop(sealed.run_id, None)
        return sealed

    async def _sealing_for(
        self, entry: Entry, run_id: str, veil: Veil
    ) -> tuple[Sealing, tuple[Node, ...]]:
        """What seals an entry, and its key's own node where that is new."""
        known = self._runs.get(run_id)
        if known is not None:
            return known, ()
        if run_id not in self._beginning:
            if entry.after or entry.header is None:
                return await self.sealing_of(run_id) or Sealing(veil.common, ""), ()
            family = entry.header.family
            self._beginning[run_id] = await self._sealing_of_new(family, run_id, veil)
        sealing, keys = self._beginning[run_id]
        return sealing, () if entry.after else keys

    async def _sealing_of_new(
        self, family: str, run_id: str, veil: Veil
    ) -> tuple[Sealing, tuple[Node, ...]]:
        if not family:
            return Sealing(veil.common, ""), ()
        # A root that is new begins a family: what is known of one of that name is over.
        seal = self._families.get(family) if family != run_id else None
        if seal is None and family != run_id:
            root = await self.sealing_of(family)
            if root is not None:
                return Sealing(root.seal, family), ()
        if seal is not None:
            return Sealing(seal, family), ()
        seal, node = self.keyring.new_seal(family)
        return Sealing(seal, family), (node,)

    def _heard(self, sealed: Sequence[Entry], answers: Answers) -> None:
        """What was begun here is sealed as it was begun; what was there before, as it is."""
        for entry, answer in zip(sealed, answers, strict=True):
            if entry.after == 0 and entry.run_id in self._beginning:
                sealing, _ = self._beginning.pop(entry.run_id)
                if answer is None:
                    self._remember(entry.run_id, sealing)

    async def read(
        self, run_id: str, after: int = 0, *, limit: int | None = None
    ) -> Reading | None:
        stored = await self.place_of(run_id)
        reading = await self.below.read(stored, after, limit=limit)
        if reading is None:
            self._forget(stored)
            return None
        return await self.open_reading(reading)

    async def open_reading(self, reading: Reading) -> Reading:
        """What was read below, as it was written."""
        veil = await self.keyring.veil()
        run_id, header = reading.head.run_id, reading.header
        records = [
            StoredRecord(record.seq, await self._open_record(run_id, header.family, record))
            for record in reading.records
        ]
        head, shown = self._show(reading.head, header, veil)
        mail = await self.open_mail(run_id, header.family, reading.mail)
        return Reading(head=head, header=shown, records=records, mail=mail)

    async def _open_record(self, run_id: str, family: str, record: StoredRecord) -> bytes:
        key_id = data_key_id(record.body)
        if key_id is None:
            is_plain = await self._may_be_plain(run_id, family, record.seq)
            return record.body if is_plain else SEAL_BROKEN
        seal = await self.keyring.seal(family, key_id)
        if seal is None:  # its key was dropped, unless the run has another
            return SEAL_BROKEN if run_id in self._runs else SEAL_ERASED
        opened = seal.open(record.body, record_place(run_id, record.seq))
        if opened is None:
            return SEAL_BROKEN
        known = self._runs.get(run_id)
        if known is None or (known.seal is not None and known.seal.id != key_id):
            # New here, or begun anew by somebody else after it was deleted.
            self._remember(run_id, Sealing(seal, family))
        return opened

    async def _may_be_plain(self, run_id: str, family: str, seq: int) -> bool:
        """Only what was begun without a key goes on without: its first record tells."""
        known = self._runs.get(run_id)
        if self.keyring.is_pure or (known is not None and known.seal is not None):
            return False
        if known is None and seq > 1 and await self._begins_sealed(run_id):
            return False
        self._remember(run_id, Sealing(None, family))
        return True

    async def _begins_sealed(self, run_id: str) -> bool:
        reading = await self.below.read(run_id, limit=1)
        first = () if reading is None else reading.records
        return any(data_key_id(record.body) is not None for record in first)

    async def find(self, query: Query, after: str | None = None, limit: int = FIND_LIMIT) -> Page:
        veil = await self.keyring.veil()
        asked = (query, after, limit)
        page = await find_hidden(self.below, asked, veil, is_pure=self.keyring.is_pure)
        shown = [self._show(each.head, each.header, veil) for each in page.items]
        items = [Found(head=head, header=header) for head, header in shown]
        return Page(items=items, next=page.next)

    async def count(self, query: Query, most: int = COUNTED_MAX) -> Count:
        veil = await self.keyring.veil()
        return await count_hidden(self.below, (query, most), veil, is_pure=self.keyring.is_pure)

    async def changes(self, after: str | None = None, limit: int = FIND_LIMIT) -> Changes:
        veil = await self.keyring.veil()
        found = await self.below.changes(after, limit)
        shown = [self._show(each.head, each.header, veil) for each in found.items]
        items = [Found(head=head, header=header) for head, header in shown]
        return Changes(items=items, next=found.next)

    def _show(self, head: Head, header: Header, veil: Veil) -> tuple[Head, Header]:
        """Both as they were written: sealed if the run's records are, else as the header says."""
        known = self._runs.get(head.run_id)
        if not is_sealed(header) if known is None else known.seal is None:
            return head, header
        return show_head(head, veil), show_header(header, head.run_id, veil)

    async def read_all(self, run_ids: Sequence[str]) -> Mapping[str, Reading]:
        asked = {await self.place_of(run_id): run_id for run_id in run_ids}
        found = await self.below.read_all(list(asked))
        return {asked[name]: await self.open_reading(each) for name, each in found.items()}

    async def delete(self, batch: Sequence[Deletion]) -> Sequence[bool]:
        veil = await self.keyring.veil()
        sealed = [
            replace(each, run_id=await self.place_of(each.run_id), digest=veil.digest(each.digest))
            for each in batch
        ]
        answers = await self.below.delete(sealed)
        for each, is_gone in zip(sealed, answers, strict=True):
            if is_gone:
                self._forget(each.run_id)
        return answers

    # ------------------------------------------------------------------ mail

    async def post(self, batch: Sequence[Posting]) -> Sequence[Posted]:
        sealed = [
            replace(each, body=await self._close_mail(each.run_id, each.mail_id, each.body))
            for each in batch
        ]
        return await self.below.post(sealed)

    async def mail_of(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[Mail]]:
        opened: dict[str, Sequence[Mail]] = {}
        for run_id, letters in (await self.below.mail_of(run_ids)).items():
            family = await self._family_of(run_id) if letters else ""
            opened[run_id] = await self.open_mail(run_id, family, letters)
        return opened

    async def _family_of(self, run_id: str) -> str:
        try:
            sealing = await self.sealing_of(run_id)
        except (CorruptRecord, Erased):  # whoever reads its journal says so
            sealing = None
        return "" if sealing is None else sealing.family

    async def _close_mail(self, run_id: str, mail_id: str, body: bytes) -> bytes:
        sealing = await self.sealing_of(run_id)
        if sealing is None:  # there is no such run, or just now
            sealing = Sealing((await self.keyring.veil()).common, "")
        if sealing.seal is None:
            return body
        return sealing.seal.close(bare(body), mail_place(run_id, mail_id))

    async def open_mail(self, run_id: str, family: str, mail: Sequence[Mail]) -> list[Mail]:
        """Mail as it was posted; what nobody with a key posted to this run is marked as broken."""
        if not mail:
            return []
        takes_plain = await self._takes_plain_mail(run_id)
        return [await self._open_letter(run_id, family, each, takes_plain) for each in mail]

    async def _takes_plain_mail(self, run_id: str) -> bool:
        """Only a run that was begun without a key does, whatever its header says."""
        try:
            sealing = await self.sealing_of(run_id)
        except (CorruptRecord, Erased):
            return False
        return sealing is not None and sealing.seal is None

    async def _open_letter(self, run_id: str, family: str, mail: Mail, takes_plain: bool) -> Mail:
        key_id = data_key_id(mail.body) if type(mail.body) is bytes else None
        if key_id is None:
            return mail if takes_plain else _broken(mail)
        common = (await self.keyring.veil()).common
        seal = common if key_id == common.id else await self.keyring.seal(family, key_id)
        body = None if seal is None else seal.open(mail.body, mail_place(run_id, mail.mail_id))
        return _broken(mail) if body is None else replace(mail, body=body, is_sealed=True)

    # ------------------------------------------------------------------ nodes

    async def put_blob(self, family: str, node: Node) -> None:
        veil = await self.keyring.veil()
        seal = self._families.get(family)
        root = None if seal is not None else await self.sealing_of(family)
        if root is not None:
            seal = root.seal
        elif seal is None:
            seal, key = self.keyring.new_seal(family)
            await self.below.put_blob(family, key)
            self._keep(self._families, family, seal)
        stored = node if seal is None else close_node(seal, family, node, veil)
        await self.below.put_blob(family, stored)

    async def get_blobs(self, family: str, addresses: Sequence[bytes]) -> Mapping[bytes, bytes]:
        veil = await self.keyring.veil()
        asked = {veil.address(address, family): address for address in addresses}
        stored = await self.below.get_blobs(family, list(asked))
        found: dict[bytes, bytes] = {}
        for address, body in stored.items():
            key_id = data_key_id(body)
            seal = None if key_id is None else await self.keyring.seal(family, key_id)
            found[asked[address]] = open_node(seal, family, Node(address, body))
        plain = [address for address in addresses if address not in found]
        if plain and not self.keyring.is_pure:
            found |= await self.below.get_blobs(family, plain)
        return found

    async def drop_blobs(self, family: str, addresses: Sequence[bytes]) -> None:
        veil = await self.keyring.veil()
        stored = [veil.address(address, family) for address in addresses]
        await self.below.drop_blobs(family, [*stored, *addresses])

    async def drop_family(self, family: str) -> bool:
        is_dropped = await self.below.drop_family(family)
        if is_dropped:
            self._families.pop(family, None)
        return is_dropped

    # ------------------------------------------------------------------ leases

    async def claim(self, worker: str, wanted: Wanted, limit: int) -> Claims:
        veil = await self.keyring.veil()
        wanted = replace(wanted, format=wanted.format + SEALED_FORMAT)
        claims = await self.below.claim(worker, wanted, limit)
        offers = []
        for offer in claims.offers:
            if await self._can_be_driven(offer):
                head, header = self._show(offer.head, offer.header, veil)
                offers.append(replace(offer, head=head, header=header))
        return replace(claims, offers=offers)

    async def _can_be_driven(self, offer: Offer) -> bool:
        """Without its key a run stays where it is; nothing of it is lost."""
        try:
            await self.sealing_of(offer.head.run_id)
        except (WrongKey, Erased, CorruptRecord) as error:
            logger.warning("%s is not driven here: %s", offer.head.run_id, error)
            return False
        return True

    # ------------------------------------------------------------------ the store itself

    async def health(self) -> Health:
        health = await self.below.health()
        await self.keyring.veil()
        facts = {**health.facts, "sealed": f"yes, with key {self.keys.ids[0]}"}
        return replace(health, facts=facts)

    # ------------------------------------------------------------------ keys

    async def place_of(self, run_id: str) -> str:
        """Under which id the store below has a journal.

        The journal of an idempotency key that was used before the store had a master key keeps
        its name: under another one the effect would be free to happen again.
        """
        stored = stored_id(run_id, await self.keyring.veil())
        if stored == run_id or self.keyring.is_pure or stored in self._runs:
            return stored
        there = await self.sealing_of(run_id)
        return stored if there is None or there.seal is not None else run_id

    async def sealing_of(self, run_id: str) -> Sealing | None:
        """What seals a run; None: there is no such run.

        Raises:
            WrongKey: its key is wrapped with a master key that was not given.
            Erased: its key was dropped.
            CorruptRecord: its first record does not open.
        """
        known = self._runs.get(run_id)
        if known is not None:
            return known
        reading = await self.below.read(run_id, LAST_CHAPTER, limit=1)
        if reading is None or not reading.records:
            return None
        record = reading.records[0]
        body = await self._open_record(run_id, reading.header.family, record)
        if body == SEAL_ERASED:
            raise Erased(run_id)
        if body == SEAL_BROKEN:
            raise CorruptRecord(run_id, record.seq, "its seal does not hold")
        return self._runs.get(run_id)

    def _remember(self, run_id: str, sealing: Sealing) -> None:
        self._keep(self._runs, run_id, sealing)
        if sealing.seal is not None and sealing.family:
            self._keep(self._families, sealing.family, sealing.seal)

    def _forget(self, run_id: str) -> None:
        """It is gone; whoever begins anew under its id does so with another key."""
        with self._lock:
            gone = self._runs.pop(run_id, None)
            for family in {run_id, run_id if gone is None else gone.family}:
                self._families.pop(family, None)

    def _keep(self, kept: dict[str, T], name: str, value: T) -> None:
        with self._lock:
            while len(kept) >= _KEPT_MAX and name not in kept:
                del kept[next(iter(kept))]
            kept[name] = value


def _broken(mail: Mail) -> Mail:
    return replace(mail, refused=_UNSEALED, is_sealed=False)


class _SealedTransaction:
    """A transaction whose outcome is sealed on its way."""

    def __init__(self, below: Transaction, seal: Seal | None, place: bytes) -> None:
        self._below, self._seal, self._place = below, seal, place
        self.connection = below.connection

    @property
    def is_lost(self) -> bool:
        return self._below.is_lost

    def commit(self, outcome: bytes) -> None:
        self._below.commit(_closed(outcome, self._seal, self._place))

    def roll_back(self) -> None:
        self._below.roll_back()

    def abort(self) -> None:
        self._below.abort()


class _SealedAsyncTransaction:
    """The same for a body that awaits."""

    def __init__(self, below: AsyncTransaction, seal: Seal | None, place: bytes) -> None:
        self._below, self._seal, self._place = below, seal, place
        self.connection = below.connection

    @property
    def is_lost(self) -> bool:
        return self._below.is_lost

    async def commit(self, outcome: bytes) -> None:
        await self._below.commit(_closed(outcome, self._seal, self._place))

    async def roll_back(self) -> None:
        await self._below.roll_back()

    def abort(self) -> None:
        self._below.abort()


class SealedTransactions:
    """The transactions of a sealed store: their outcomes are sealed, and the runs that they begin.

    Tables of users stay as they are.
    """

    def __init__(self, store: SealedStore, below: Transactional) -> None:
        self._store, self._below = store, below
        self.seconds_max = below.seconds_max

    def begin(self, attempt: Attempt, seconds: float) -> Transaction:
        seal = run_immediate(self._seal_of(attempt))
        return _SealedTransaction(self._below.begin(attempt, seconds), seal, _place(attempt))

    async def begin_async(self, attempt: Attempt, seconds: float) -> AsyncTransaction:
        seal = await self._seal_of(attempt)
        below = await self._below.begin_async(attempt, seconds)
        return _SealedAsyncTransaction(below, seal, _place(attempt))

    async def outcome_of(self, attempt: Attempt) -> bytes | None:
        outcome = await self._below.outcome_of(attempt)
        seal = await self._seal_of(attempt)
        if outcome is None or seal is None:
            return outcome
        opened = seal.open(outcome, _place(attempt))
        if opened is None:
            raise CorruptRecord(attempt.run_id, attempt.seq, "the seal of an outcome does not hold")
        return enclose_old_outcome(attempt.run_id, attempt.step, attempt.seq, opened)

    async def outcomes_of(self, run_id: str) -> Sequence[KeptOutcome]:
        """What does not open is shown empty."""
        kept = await self._below.outcomes_of(run_id)
        sealing = await self._store.sealing_of(run_id) if kept else None
        if sealing is None or sealing.seal is None:
            return kept
        found = []
        for each in kept:
            attempt = Attempt(run_id=run_id, step=each.step, seq=0, epoch=0)
            body = sealing.seal.open(each.body, _place(attempt))
            shown = b"" if body is None else enclose_old_outcome(run_id, each.step, 0, body)
            found.append(KeptOutcome(step=each.step, body=shown))
        return found

    async def forget_outcomes(self, steps: Sequence[tuple[str, str]]) -> None:
        await self._below.forget_outcomes(steps)

    async def _seal_of(self, attempt: Attempt) -> Seal | None:
        sealing = await self._store.sealing_of(attempt.run_id)
        return None if sealing is None else sealing.seal

    def enlist(self, connection: Any, entry: Entry) -> tuple[bool, Reading | None]:
        sealed = run_immediate(self._store.close_enlisted(entry))
        is_in, there = self._below.enlist(connection, sealed)
        return is_in, None if there is None else run_immediate(self._store.open_reading(there))

    async def enlist_async(self, connection: Any, entry: Entry) -> tuple[bool, Reading | None]:
        sealed = await self._store.close_enlisted(entry)
        is_in, there = await self._below.enlist_async(connection, sealed)
        return is_in, None if there is None else await self._store.open_reading(there)

    async def commit_with(self, entry: Entry | None, statements: Sequence[Statement]) -> NoReturn:
        raise cannot_write_rows()


def _closed(outcome: bytes, seal: Seal | None, place: bytes) -> bytes:
    return outcome if seal is None else seal.close(outcome, place)


def _place(attempt: Attempt) -> bytes:
    return f"outcome of {attempt.step}\0{attempt.run_id}".encode()
