"""What is kept of runs: what never gets in, what goes when it is old, what comes back.

Rules come from code or from the environment; without any, nothing is redacted or deleted.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator, Mapping
from weakref import finalize

from outlive.app.keys import archive_keys_of, sealed_like
from outlive.app.reader import Looking
from outlive.errors import UsageError
from outlive.journal.blobs import id_of
from outlive.journal.lane import run_immediate
from outlive.journal.redaction import Hider, LogFilter
from outlive.journal.retention.archive import (
    Archive,
    Archived,
    FileArchive,
    StoreArchive,
    copy_run,
    read_archive,
)
from outlive.journal.retention.sweep import Rules, Sweep, Swept
from outlive.journal.seal.places import is_sealed
from outlive.model.ids import check_run_id
from outlive.model.redaction import Redaction, parse_redaction
from outlive.model.retention import Retention, parse_retention, with_own
from outlive.ports import Ports
from outlive.settings import Settings
from outlive.stores.open import open_store, shown_place
from outlive.stores.seam import Store
from outlive.stores.types import Found
from outlive.worker.retention import rest_after

#: Whoever is asked to clear away what is old rests for as long as it works.
ASKED_REST_FACTOR = 1.0

NO_RULES = (
    "no rules say what may be deleted; set OUTLIVE_RETENTION, for example "
    '"completed=30d,failed=90d", or give a Retention'
)


class Tending(Looking):
    """One store, as those see it who clear it."""

    _ports: Ports
    _settings: Settings
    #: By what the rules call them; opened when they are first needed.
    _archives: dict[str, Archive]

    def _set_rules(self, retention: Retention | None) -> None:
        """What may be deleted: as given, or as the environment says."""
        self.retention = retention or parse_retention(self._settings.retention)
        self._archives = {}

    def _set_redaction(self, redaction: Redaction | None) -> None:
        """What is never recorded: as given, or as the environment says."""
        said = self._settings.redact, self._settings.redact_pattern
        self._hider = Hider(redaction or parse_redaction(*said))
        clears = LogFilter(self._hider, is_sealed=is_sealed(self.store))
        logger = logging.getLogger("outlive")
        logger.addFilter(clears)
        self._let_logs_be = finalize(self, logger.removeFilter, clears)

    async def retain(self, retention: Retention | None = None, *, dry_run: bool = False) -> Swept:
        """Delete what these rules, or the app's own, let go, now; what that came to.

        With ``dry_run`` nothing is changed, and each run is listed.
        """
        self._check_open()
        check_rules(retention=retention)
        rules = retention or self.retention
        if rules is None:
            raise UsageError(NO_RULES)
        archive = None if dry_run else self._archive_of(rules)
        how = Rules(retention=rules, archive=archive)
        sweep = Sweep(self.store, how, self._ports, dry_run=dry_run)
        clock = self._ports.clock
        while True:
            began = clock.monotonic()
            if not await self._lane(sweep.step()):
                return sweep.swept
            took = clock.monotonic() - began
            await asyncio.sleep(0 if dry_run else rest_after(took, ASKED_REST_FACTOR))

    async def delete(self, run_id: str) -> bool:
        """Delete a run that has ended, now; its id and keys stay taken. False: it is needed.

        Its parent may need it, or a fork of it. One that is under way must be cancelled first.
        """
        self._check_open()
        reading = await self.read(check_run_id(run_id), 1 << 62)
        if reading.header.ended_at is None:
            return False
        rules = self.retention or Retention()
        how = Rules(retention=rules, archive=self._archive_of(rules))
        sweep = Sweep(self.store, how, self._ports)
        sweep.doom(Found(head=reading.head, header=reading.header))
        while await self._lane(sweep.step()):
            pass
        return sweep.swept.fates["deleted"] > 0

    async def restore(self, run: Archived) -> bool:
        """Put an archived run back, as it was; False: it is there."""
        self._check_open()
        return await self._lane(copy_run(self.store, run))

    def archived(self, path: str | os.PathLike[str]) -> Iterator[Archived]:
        """The runs of an archive's file; a sealed one opens with the key of its store.

        Raises:
            CorruptArchive: the file is damaged, cut, or none of ours.
            WrongKey: it is sealed, with another key than this store has.
        """
        return read_archive(path, archive_keys_of(self.store))

    def _rules_for(self, own: Mapping[str, Retention]) -> Rules | None:
        rules = with_own(self.retention, own)
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
            return FileArchive(folder, self._ports, archive_keys_of(self.store))
        if scheme == "memory":
            raise UsageError("archive=memory:// would be gone with the process; name a folder")
        lease_seconds = self._settings.lease_seconds
        other = open_store(where, ports=self._ports, lease_seconds=lease_seconds)
        try:
            archive = StoreArchive(sealed_like(self.store, other))
            run_immediate(self._check_other(other, shown_place(where)))
        except BaseException:
            run_immediate(other.close())
            raise
        return archive

    async def _check_other(self, other: Store, name: str) -> None:
        """Refuse an archive that loses what it is to keep."""
        here = getattr(self.store, "below", self.store)  # of a sealed one: what it is sealed in
        if await id_of(here, self._ports.entropy) == await id_of(other, self._ports.entropy):
            raise UsageError(f"archive={name} is the store itself; name another, or a folder")

    def _close_archive(self) -> None:
        for archive in self._archives.values():
            run_immediate(archive.close())


def check_rules(*, retention: object = None, redaction: object = None) -> None:
    """Refuse rules that are none: texts with rules belong into the environment."""
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
