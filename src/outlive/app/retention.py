"""Retention: delete old runs by rules, archive them before, restore them.

Rules come from code or from the environment; without rules nothing is deleted.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping

from outlive.app.reader import StoreReader
from outlive.app.seal import archive_keys_of, sealed_like
from outlive.errors import UsageError
from outlive.journal.blobs import id_of
from outlive.journal.lane import run_immediate
from outlive.journal.retention.archive import (
    Archive,
    Archived,
    FileArchive,
    StoreArchive,
    copy_run,
    read_archive,
)
from outlive.journal.retention.sweep import Rules, Sweep, Swept
from outlive.model.ids import check_run_id
from outlive.model.redaction import Redaction
from outlive.model.retention import Retention, parse_retention, with_own
from outlive.settings import Settings
from outlive.stores.open import open_store, shown_place
from outlive.stores.seam import Store
from outlive.stores.types import Found
from outlive.worker.retention import rest_after

#: ``retain()`` pauses between two portions for as long as the last one took.
ASKED_REST_FACTOR = 1.0

NO_RULES = (
    "no rules say what may be deleted; set OUTLIVE_RETENTION, for example "
    '"completed=30d,failed=90d", or give a Retention'
)


class StoreRetention:
    """Deletes what the rules allow, and archives it before if they say so."""

    def __init__(
        self, reader: StoreReader, settings: Settings, rules: Retention | None = None
    ) -> None:
        self._reader, self._settings = reader, settings
        #: What may be deleted: as given, or as the environment says; None: nothing.
        self.rules = rules or parse_retention(settings.retention)
        #: By the name that rules have for them; opened on first use.
        self._archives: dict[str, Archive] = {}

    async def retain(self, retention: Retention | None = None, *, dry_run: bool = False) -> Swept:
        """Delete what these rules, or the app's own, allow."""
        self._reader.check_open()
        check_rules(retention=retention)
        rules = retention or self.rules
        if rules is None:
            raise UsageError(NO_RULES)
        archive = None if dry_run else self._archive_of(rules)
        how = Rules(retention=rules, archive=archive)
        sweep = Sweep(self._reader.store, how, self._reader.ports, dry_run=dry_run)
        clock = self._reader.ports.clock
        while True:
            began = clock.monotonic()
            if not await self._reader.lane(sweep.step()):
                return sweep.swept
            took = clock.monotonic() - began
            await asyncio.sleep(0 if dry_run else rest_after(took, ASKED_REST_FACTOR))

    async def delete(self, run_id: str) -> bool:
        """Delete one run that has ended; False: it has not, or another run needs it."""
        self._reader.check_open()
        reading = await self._reader.read(check_run_id(run_id), 1 << 62)
        if reading.header.ended_at is None:
            return False
        rules = self.rules or Retention()
        how = Rules(retention=rules, archive=self._archive_of(rules))
        sweep = Sweep(self._reader.store, how, self._reader.ports)
        sweep.doom(Found(head=reading.head, header=reading.header))
        while await self._reader.lane(sweep.step()):
            pass
        return sweep.swept.fates["deleted"] > 0

    async def restore(self, run: Archived) -> bool:
        """Put an archived run back; False: a run of that id is there."""
        self._reader.check_open()
        return await self._reader.lane(copy_run(self._reader.store, run))

    def archived(self, path: str | os.PathLike[str]) -> Iterator[Archived]:
        """The runs in an archive's file."""
        return read_archive(path, archive_keys_of(self._reader.store))

    def rules_with(self, own: Mapping[str, Retention]) -> Rules | None:
        """What a worker may delete whose flows have these rules of their own; None: nothing."""
        rules = with_own(self.rules, own)
        if rules is None:
            return None
        return Rules(
            retention=rules,
            archive=self._archive_of(rules),
            period_seconds=self._settings.retain_seconds,
        )

    def _archive_of(self, rules: Retention) -> Archive | None:
        where = rules.archive
        if where is None:
            return None
        if where not in self._archives:
            self._archives[where] = self._open_archive(where)
        return self._archives[where]

    def _open_archive(self, where: str) -> Archive:
        scheme, separator, rest = where.partition("://")
        if not separator or scheme == "file":
            folder = os.path.abspath(rest or where)
            _make_folder(folder)
            return FileArchive(folder, self._reader.ports, archive_keys_of(self._reader.store))
        if scheme == "memory":
            raise UsageError("archive=memory:// would be gone with the process; name a folder")
        lease_seconds = self._settings.lease_seconds
        other = open_store(where, ports=self._reader.ports, lease_seconds=lease_seconds)
        try:
            archive = StoreArchive(sealed_like(self._reader.store, other))
            run_immediate(self._check_other(other, shown_place(where)))
        except BaseException:
            run_immediate(other.close())
            raise
        return archive

    async def _check_other(self, other: Store, name: str) -> None:
        """Refuse the store itself as its own archive."""
        store = self._reader.store
        here = getattr(store, "below", store)  # the store that a sealed one writes to
        if await id_of(here, self._reader.ports.entropy) == await id_of(
            other, self._reader.ports.entropy
        ):
            raise UsageError(f"archive={name} is the store itself; name another, or a folder")

    def close(self) -> None:
        """Close the archives."""
        for archive in self._archives.values():
            run_immediate(archive.close())


def check_rules(*, retention: object = None, redaction: object = None) -> None:
    """Refuse rules of another type: rules as text are for the environment."""
    for name, given, kind, example in (
        ("retention", retention, Retention, "completed='30d'"),
        ("redaction", redaction, Redaction, "names=('password',)"),
    ):
        if given is not None and not isinstance(given, kind):
            known = f"{name} is a {kind.__name__}, not {type(given).__name__}"
            raise UsageError(f"{known}; write outlive.{kind.__name__}({example})")


def _make_folder(folder: str) -> None:
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(
            f"archive={folder} can't be a folder: {why}; name a folder, or the URL of a store"
        ) from error
