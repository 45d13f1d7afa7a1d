"""From URLs and a key to an app."""

from __future__ import annotations

from typing import Any

from outlive.app.app import App
from outlive.app.retention import check_rules
from outlive.app.seal import with_key
from outlive.errors import UsageError
from outlive.journal.blobs import check_here, keep_elsewhere, place_of
from outlive.journal.lane import run_immediate
from outlive.model.redaction import Redaction
from outlive.model.retention import Retention
from outlive.ports import Ports
from outlive.settings import Settings
from outlive.stores.open import check_there, check_url, open_store, shown_place
from outlive.stores.seam import Store


def open_app(  # noqa: PLR0913 - what users and commands may say, each by name
    url: str | None = None,
    *,
    key: str | None = None,
    blobs: str | None = None,
    drive: bool = True,
    ports: Ports | None = None,
    must_exist: bool = False,
    only_looks: bool = False,
    settings: Settings | None = None,
    retention: Retention | None = None,
    redaction: Redaction | None = None,
) -> App:
    """An explicit Outlive on one store (default: ``OUTLIVE_STORE``, or a file in this folder).

    With a ``key`` (default: ``OUTLIVE_KEY``) what is stored is sealed. ``blobs`` (default:
    ``OUTLIVE_BLOBS``) is the URL of another store, which keeps blobs.
    """
    check_rules(retention=retention, redaction=redaction)
    if key is not None and type(key) is not str:
        raise UsageError(f"key is a text, not {type(key).__name__}; `outlive key` makes one")
    settings = settings or Settings.from_environment()
    ports = ports or Ports()
    url = settings.store if url is None else check_url(url)
    key = settings.key if key is None else key
    if must_exist:
        check_there(url, ports)
    store = open_store(url, ports=ports, lease_seconds=settings.lease_seconds, upgrades=drive)
    elsewhere = settings.blobs if blobs is None else blobs and check_url(blobs)
    if elsewhere and (drive or not must_exist or run_immediate(place_of(store)) is not None):
        # Who only looks makes no place for blobs where there is none yet.
        store = _with_blobs(store, elsewhere, ports, settings)
    elif not elsewhere and not only_looks:
        run_immediate(check_here(store))
    store = with_key(store, key, ports, only_looks=only_looks)
    rules: dict[str, Any] = {"retention": retention, "redaction": redaction}
    return App(store, ports=ports, settings=settings, drive=drive, **rules)


def _with_blobs(store: Store, url: str, ports: Ports, settings: Settings) -> Store:
    if url.startswith("memory:"):
        raise UsageError("OUTLIVE_BLOBS=memory:// would be gone with the process; name a file")
    if run_immediate(place_of(store)) is not None:
        # An empty place must not be made where blobs are expected.
        check_there(url, ports, "OUTLIVE_BLOBS")
    blobs = open_store(url, ports=ports, lease_seconds=settings.lease_seconds)
    return run_immediate(keep_elsewhere(store, blobs, shown_place(url), ports.entropy))
