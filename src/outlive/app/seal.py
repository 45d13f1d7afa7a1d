"""With a key: every store is sealed. Without one: nothing is written to a store that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from outlive.errors import UsageError, WrongKey
from outlive.journal.lane import run_immediate
from outlive.journal.seal.places import is_sealed, sealed_with
from outlive.ports import Ports
from outlive.stores.open import open_store
from outlive.stores.seam import Store

if TYPE_CHECKING:  # cryptography need not be installed
    from outlive.journal.seal.rekey import ArchiveKeys


def sealed(store: Store, key: str, ports: Ports) -> Store:
    """The store as those see it who have the key.

    Raises:
        UsageError: this is no key, or what seals is not installed.
        WrongKey: the store is sealed with another.
    """
    _check_installed()
    from outlive.journal.seal.keys import MasterKeys
    from outlive.journal.seal.sealed_store import SealedStore

    closed = SealedStore(store, MasterKeys.parse(key, ports.entropy))
    run_immediate(closed.keyring.veil())  # a wrong key is noticed here, and not in the middle
    return closed


def new_master_key(ports: Ports) -> str:
    """A key for ``OUTLIVE_KEY``."""
    _check_installed()
    from outlive.journal.seal.keys import new_key

    return new_key(ports.entropy)


async def rekey_store(store: Store, tell: Callable[[str], None]) -> int:
    """Have the first master key wrap every data key; how many it did not before."""
    _check_installed()
    from outlive.journal.seal.rekey import rekey
    from outlive.journal.seal.sealed_store import SealedStore

    if not isinstance(store, SealedStore):
        raise UsageError("there is no key: set OUTLIVE_KEY to the new key, a comma, the old one")
    return await rekey(store, tell)


async def erase_family(store: Store, run_id: str, keep_until: int) -> list[str]:
    """Drop the data key of a run's family, then its runs; their ids."""
    _check_installed()
    from outlive.journal.seal.rekey import erase

    return await erase(store, run_id, keep_until=keep_until)


def _check_installed() -> None:
    try:
        import cryptography  # noqa: F401 - what seals needs it, and only what seals
    except ImportError as error:
        raise UsageError(
            f"sealing needs the cryptography package ({error}); `pip install 'outlive[seal]'`"
        ) from error


def archive_keys(key: str, ports: Ports) -> ArchiveKeys | None:
    """What opens the files of archives; without a key, none that is sealed."""
    if not key:
        return None
    _check_installed()
    from outlive.journal.seal.keys import MasterKeys
    from outlive.journal.seal.rekey import ArchiveKeys

    return ArchiveKeys(MasterKeys.parse(key, ports.entropy))


def archive_keys_of(store: Store) -> ArchiveKeys | None:
    """What seals the archives of a sealed store; of any other, nothing."""
    if not is_sealed(store):
        return None
    from outlive.journal.seal.rekey import ArchiveKeys
    from outlive.journal.seal.sealed_store import SealedStore

    assert isinstance(store, SealedStore)
    return ArchiveKeys(store.keys)


def key_ids_of(store: Store) -> list[str]:
    """What the master keys of a sealed store are called; of any other, nothing."""
    if not is_sealed(store):
        return []
    from outlive.journal.seal.sealed_store import SealedStore

    assert isinstance(store, SealedStore)
    return store.keys.ids


def sealed_like(store: Store, other: Store) -> Store:
    """The other store, sealed with the keys of this one, if it is."""
    if not is_sealed(store):
        check_unsealed(other)
        return other
    from outlive.journal.seal.sealed_store import SealedStore

    assert isinstance(store, SealedStore)
    closed = SealedStore(other, store.keys)
    run_immediate(closed.keyring.veil())
    return closed


def check_unsealed(store: Store) -> None:
    """Refuse to write what anybody can read beside what nobody else can."""
    ids = run_immediate(sealed_with(store))
    if ids:
        raise WrongKey("this store", ids)


def open_sealed(
    url: str, key: str, *, ports: Ports, lease_seconds: float, only_looks: bool = False
) -> Store:
    """The store of a URL, sealed if there is a key.

    Raises:
        WrongKey: it is sealed, and this key is not its own; or there is none, to write with.
    """
    store = open_store(url, ports=ports, lease_seconds=lease_seconds)
    return with_key(store, key, ports, only_looks=only_looks)


def with_key(store: Store, key: str, ports: Ports, *, only_looks: bool = False) -> Store:
    """The store, sealed if there is a key; as ``open_sealed``."""
    if key:
        return sealed(store, key, ports)
    if not only_looks:
        check_unsealed(store)
    return store
