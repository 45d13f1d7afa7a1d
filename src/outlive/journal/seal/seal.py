"""A seal: authenticated encryption with one data key, bound to the place where a thing belongs.

What is sealed opens only at its own place (run and seq, mail id, node address): swapped, renamed
or cut bytes do not open at all. The nonce is a keyed hash of place and content: the same thing at
the same place looks the same, which a store needs to recognize a repeat, and nothing else does.
A sealed record begins like every record, with a flag set, so that those without a key know it.

    "Ol" format flags suite | id of the data key 8 | nonce 12 | sealed bytes | tag 16
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Sequence
from hashlib import blake2b

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV
from msgspec.structs import replace

from outlive.errors import CorruptRecord
from outlive.journal.headers import HIDDEN
from outlive.journal.record import SEALED_BEGIN
from outlive.journal.seal.keys import KEY_BYTES, NONCE_BYTES, Entropy, MasterKeys
from outlive.journal.seal.places import COMMON, SECRET_ID, key_places
from outlive.stores.seam import Store
from outlive.stores.types import Count, Found, Head, Header, Node, Page, Query

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


_SEALS_MAX = 10_000


class Keyring:
    """Finds keys, makes them, and changes what wraps them."""

    def __init__(self, store: Store, keys: MasterKeys) -> None:
        self._store, self._keys = store, keys
        self._veil: Veil | None = None
        #: Nothing in the store was ever written without a seal.
        self.is_pure = False
        self._seals: dict[tuple[str, bytes], Seal] = {}
        self._lock = threading.Lock()

    async def veil(self) -> Veil:
        """What hides that which the store compares; made when the store is sealed first."""
        if self._veil is None:
            found = await self._wrapped(COMMON, SECRET_ID)
            if not found:
                await self._make_secret()
                found = await self._wrapped(COMMON, SECRET_ID)
            secret = self._keys.unwrap(found, _place(COMMON, SECRET_ID), "this store")
            self.is_pure = secret[KEY_BYTES:] == b"pure"
            self._veil = Veil(secret[:KEY_BYTES])
        return self._veil

    async def _make_secret(self) -> None:
        is_empty = not (await self._store.find(Query(), limit=1)).items
        secret = self._keys.entropy(KEY_BYTES) + (b"pure" if is_empty else b"")
        await self._store.put_blob(COMMON, self._node(COMMON, SECRET_ID, secret))

    def new_seal(self, family: str) -> tuple[Seal, Node]:
        """A data key, and the node that must be stored with what it seals first."""
        seal = Seal.new(self._keys.entropy)
        self._remember(family, seal)
        return seal, self._node(family, seal.id, seal.secret)

    async def seal(self, family: str, key_id: bytes) -> Seal | None:
        """The data key of that id; None: it is gone.

        Raises:
            WrongKey: it is there and wrapped with another master key.
        """
        known = self._seals.get((family, key_id)) if family else (await self.veil()).common
        if known is not None:
            return known
        found = await self._wrapped(family, key_id)
        if not found:
            return None
        what = f"family {family}"
        seal = Seal(self._keys.unwrap(found, _place(family, key_id), what))
        if seal.id != key_id:
            raise CorruptRecord(family, 1, f"its data key is not {key_id.hex()}")
        self._remember(family, seal)
        return seal

    async def rewrap(self, family: str, key_id: bytes) -> bool:
        """Have the current master key, and no other, wrap this data key; False: it does already."""
        places = key_places(key_id)
        found = await self._store.get_blobs(family, places)
        old = [address for address, body in found.items() if not self._keys.is_current(body)]
        if not old:
            return False
        place = _place(family, key_id)
        if len(old) == len(found):
            secret = self._keys.unwrap(list(found.values()), place, f"family {family}")
            free = [address for address in places if address not in found] or old[:1]
            if free == old[:1]:
                await self._store.drop_blobs(family, free)
            await self._store.put_blob(family, Node(free[0], self._keys.wrap(secret, place)))
            old = [address for address in old if address != free[0]]
        await self._store.drop_blobs(family, old)
        return True

    async def rewrap_secret(self) -> bool:
        """The same for what belongs to no run."""
        return await self.rewrap(COMMON, SECRET_ID)

    async def erase(self, family: str, key_id: bytes) -> None:
        """Drop a data key: what it sealed is gone for good."""
        await self._store.drop_blobs(family, key_places(key_id))
        with self._lock:
            self._seals.pop((family, key_id), None)

    async def _wrapped(self, family: str, key_id: bytes) -> Sequence[bytes]:
        places = key_places(key_id)
        return list((await self._store.get_blobs(family, places)).values())

    def _node(self, family: str, key_id: bytes, secret: bytes) -> Node:
        return Node(key_places(key_id)[0], self._keys.wrap(secret, _place(family, key_id)))

    def _remember(self, family: str, seal: Seal) -> None:
        with self._lock:
            while len(self._seals) >= _SEALS_MAX:
                del self._seals[next(iter(self._seals))]
            self._seals[family, seal.id] = seal


def _place(family: str, key_id: bytes) -> bytes:
    return b"key\0" + key_id + family.encode()


#: Added to the record format of a run that is sealed.
SEALED_FORMAT = 256

_KEY_JOURNAL = "key/"
#: The same for all runs: those of one error are found by it.
_ERROR_PLACE = "error of a run"


def stored_id(run_id: str, veil: Veil) -> str:
    """Ids of runs stay readable; an idempotency key is made of arguments and does not."""
    if not run_id.startswith(_KEY_JOURNAL):
        return run_id
    return _KEY_JOURNAL + veil.hide(run_id[len(_KEY_JOURNAL) :], _KEY_JOURNAL)


def shown_id(run_id: str, veil: Veil) -> str:
    """An id that the store has, as it was given."""
    if not run_id.startswith(_KEY_JOURNAL):
        return run_id
    return _KEY_JOURNAL + veil.show(run_id[len(_KEY_JOURNAL) :], _KEY_JOURNAL)


def hide_header(header: Header, run_id: str, veil: Veil) -> Header:
    """As the store sees it."""
    return replace(
        header,
        format=header.format + SEALED_FORMAT,
        tags={name: veil.hide(value, name) for name, value in header.tags.items()},
        reason=veil.hide(header.reason, run_id),
        chapter_link=veil.mask(header.chapter_link, run_id, -header.chapter),
        error=veil.hide(header.error, _ERROR_PLACE),
        published=veil.hide(header.published, f"published {run_id}"),
        questions=veil.hide(header.questions, f"questions {run_id}"),
    )


def hide_query(query: Query, veil: Veil) -> Query:
    """What a query asks for, as the store has it."""
    tags = tuple((name, veil.hide(value, name)) for name, value in query.all_tags)
    error = None if query.error is None else veil.hide(query.error, _ERROR_PLACE)
    return replace(query, tag=None, tags=tags, error=error) if tags or error else query


#: Begins the cursor of a page of runs that were tagged before there was a key.
_PLAIN = "plain:"


async def find_hidden(
    store: Store, asked: tuple[Query, str | None, int], veil: Veil, *, is_pure: bool
) -> Page:
    """A page as the store has it. What was tagged before there was a key comes behind all else."""
    query, after, limit = asked
    hidden = hide_query(query, veil)
    is_behind = after is not None and after.startswith(_PLAIN)
    items: Sequence[Found] = ()
    if not is_behind:
        page = await store.find(hidden, after, limit)
        if hidden == query or is_pure or page.next is not None:
            return page
        items = page.items
        if len(items) == limit:
            return Page(items=items, next=_PLAIN)
    begin = after[len(_PLAIN) :] or None if is_behind and after is not None else None
    rest = await store.find(query, begin, limit - len(items))
    following = None if rest.next is None else _PLAIN + rest.next
    return Page(items=[*items, *rest.items], next=following)


async def count_hidden(
    store: Store, asked: tuple[Query, int], veil: Veil, *, is_pure: bool
) -> Count:
    """The same for a count."""
    query, most = asked
    hidden = hide_query(query, veil)
    found = await store.count(hidden, most)
    if hidden == query or is_pure:
        return found
    plain = await store.count(query, most)
    value = found.value + plain.value
    is_capped = value > most or found.is_capped or plain.is_capped
    return Count(value=min(value, most), is_capped=is_capped)


def show_header(header: Header, run_id: str, veil: Veil) -> Header:
    """As it was before. A format that somebody changed is shown as one that there is not."""
    return replace(
        header,
        format=header.format - SEALED_FORMAT,
        tags={name: veil.show(value, name) for name, value in header.tags.items()},
        reason=veil.show(header.reason, run_id),
        chapter_link=veil.mask(header.chapter_link, run_id, -header.chapter),
        error=veil.show(header.error, _ERROR_PLACE),
        published=veil.show(header.published, f"published {run_id}"),
        questions=veil.show(header.questions, f"questions {run_id}"),
    )


def show_head(head: Head, veil: Veil) -> Head:
    """The head with the link that its records have."""
    link = veil.mask(head.link, head.run_id, head.seq)
    return replace(head, run_id=shown_id(head.run_id, veil), link=link)


def is_sealed(header: Header) -> bool:
    """Whether the run was begun with a key, as far as its header tells; its records know better."""
    return header.format >= SEALED_FORMAT


def close_node(seal: Seal, family: str, node: Node, veil: Veil) -> Node:
    """A node as the store has it."""
    address = veil.address(node.address, family)
    return Node(address, seal.close(node.body, _node_place(family, address)))


def open_node(seal: Seal | None, family: str, node: Node) -> bytes:
    """Its bytes again; those that do not open are left as they are: their hash tells."""
    if seal is None or data_key_id(node.body) is None:
        return node.body
    opened = seal.open(node.body, _node_place(family, node.address))
    return node.body if opened is None else opened


def record_place(run_id: str, seq: int) -> bytes:
    """Where a record belongs."""
    return b"record %d of " % seq + run_id.encode()


def mail_place(run_id: str, mail_id: str) -> bytes:
    """Where mail belongs; ids hold no zero byte."""
    return f"mail {mail_id}\0{run_id}".encode("utf-8", "surrogatepass")


def _node_place(family: str, address: bytes) -> bytes:
    return b"node " + address + family.encode()
