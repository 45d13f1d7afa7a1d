"""From a URL and a key to an app."""

from __future__ import annotations

from outlive.app import App
from outlive.model.retention import Retention
from outlive.ports import Ports
from outlive.sealing import open_sealed
from outlive.settings import Settings
from outlive.stores.open import check_there


def open_app(  # noqa: PLR0913 - what users and commands may say, each by name
    url: str | None = None,
    *,
    key: str | None = None,
    drive: bool = True,
    ports: Ports | None = None,
    must_exist: bool = False,
    only_looks: bool = False,
    settings: Settings | None = None,
    retention: Retention | None = None,
) -> App:
    """An explicit Outlive on one store (default: ``OUTLIVE_STORE``, or a file in this folder).

    With a ``key`` (default: ``OUTLIVE_KEY``) what is stored is sealed.
    """
    settings = settings or Settings.from_environment()
    ports = ports or Ports()
    url = url or settings.store
    key = settings.key if key is None else key
    if must_exist:
        check_there(url, ports)
    store = open_sealed(
        url, key, ports=ports, lease_seconds=settings.lease_seconds, only_looks=only_looks
    )
    return App(store, ports=ports, settings=settings, drive=drive, retention=retention)
