"""Known-bad variants of the real code, patched in from tests: what the tests are worth.

Each mutant breaks one rule that a promise rests on. A named test must fail under it
(``killers.py``), and the simulation must find it, or green means nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from outlive.engine import effects
from outlive.engine import replay as comparing
from outlive.engine.effects import EffectRunner
from outlive.engine.keys import KeyClaims
from outlive.engine.ops import Op
from outlive.engine.replay import Replay
from outlive.engine.steps import StepRunner
from outlive.errors import OutliveError
from outlive.journal import reader
from outlive.journal.keeper import Answer, Keeper
from outlive.journal.record import Envelope, unpack_unlinked
from outlive.model.events import Event
from outlive.ports import RemoteClock
from outlive.stores import memory
from outlive.stores.sqlite import commit as sqlite_commit
from outlive.stores.sqlite import schema as sqlite_schema
from outlive.stores.types import Conflict, Entry, Head, StoredRecord
from tests.mutants import mutants_logs as logs
from tests.mutants import mutants_places as places
from tests.mutants import mutants_retention as retention
from tests.mutants import mutants_streams as streams
from tests.mutants import mutants_transactions as transactions
from tests.mutants import mutants_waits as waits
from tests.mutants import redaction, values

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One broken rule."""

    name: str
    apply: Patch
    #: False: no fault that the simulation makes can show it.
    is_simulated: bool = True


# ---------------------------------------------------------------- the store


def _patch_views(patch: pytest.MonkeyPatch, *cuts: str) -> None:
    """Cut conditions out of the triggers that are SQLite's fence."""
    views = {}
    for name, (columns, body) in sqlite_commit.VIEWS.items():
        for cut in cuts:
            body = body.replace(cut, "")
        views[name] = (columns, body)
    assert views != sqlite_commit.VIEWS, "the fence has moved; the mutant must follow it"
    patch.setattr(sqlite_commit, "VIEWS", views)


def fencing_off(patch: pytest.MonkeyPatch) -> None:
    """A commit is taken whatever its epoch."""

    def follows(head: Head, entry: Entry) -> bool:
        return head.seq == entry.after or entry.epoch < head.epoch

    patch.setattr(memory, "follows", follows)
    _patch_views(patch, " AND epoch = NEW.epoch_before", " AND epoch = NEW.epoch")


def seq_check_off(patch: pytest.MonkeyPatch) -> None:
    """A commit of the right epoch is taken wherever it says it belongs."""

    def follows(head: Head, entry: Entry) -> bool:
        return head.epoch == (entry.epoch - 1 if entry.lease == "take" else entry.epoch)

    patch.setattr(memory, "follows", follows)
    _patch_views(patch, "seq = NEW.after AND ")


def repeat_after_takeover(patch: pytest.MonkeyPatch) -> None:
    """A repeated commit is answered done though another drives the run by now."""

    def repeats(head: Head, records: Sequence[StoredRecord], entry: Entry) -> bool:
        return StoredRecord(entry.after + 1, entry.record) in records

    real = sqlite_commit._look_up

    def look_up(db: Any, entry: Entry, now: int) -> Conflict | None:
        row = db.execute(
            "SELECT 1 FROM runs, records WHERE run = runs.id AND run_id = ? AND body = ?",
            (entry.run_id, entry.record),
        ).fetchone()
        return real(db, entry, now) if row is None else None

    patch.setattr(memory, "repeats", repeats)
    patch.setattr(sqlite_commit, "_look_up", look_up)


# ---------------------------------------------------------------- the journal


def acknowledge_before_sync(patch: pytest.MonkeyPatch) -> None:
    """Runs are told that their events are durable before the store has said so."""

    async def flush_once(self: Keeper) -> None:
        loose, logs, batch = self._take()
        if batch:
            self._tell(batch, [None] * len(batch), loose, logs)
            try:
                await self._store.commit(batch)
            except OutliveError as error:
                self.end(error)

    patch.setattr(Keeper, "flush_once", flush_once)


def chain_check_off(patch: pytest.MonkeyPatch) -> None:
    """A record is believed though its link does not follow from the one before."""

    def unpack(run_id: str, prev: bytes, record: bytes, expected_seq: int) -> Envelope:
        return unpack_unlinked(run_id, record, expected_seq)

    patch.setattr(reader, "unpack", unpack)


def replay_order_off(patch: pytest.MonkeyPatch) -> None:
    """A replay delivers what was recorded in another order."""
    real = Replay.inbox

    def inbox(self: Replay, events: Sequence[Event]) -> Iterable[Event]:
        return sorted(real(self, events), key=lambda event: getattr(event, "step", ""))

    patch.setattr(Replay, "inbox", inbox)


# ---------------------------------------------------------------- the engine


def intent_after_effect(patch: pytest.MonkeyPatch) -> None:
    """An effect is attempted at once, and its intent written when it has ended."""
    kept: dict[Op, Event] = {}
    real_intend, real_ended = EffectRunner._intend, EffectRunner._ended

    def intend(self: EffectRunner, op: Op) -> None:
        drive: Any = self._context
        drive.note = lambda event, mail_id=None: kept.__setitem__(op, event)
        drive.when_durable = lambda callback, *args: callback(*args)
        try:
            real_intend(self, op)
        finally:
            del drive.note, drive.when_durable

    def ended(self: EffectRunner, op: Op, value: Any, error: Any) -> None:
        intent = kept.pop(op, None)
        if intent is not None and not self._context.stopped:
            self._context.note(msgspec.structs.replace(intent, at=self._context.at()))
        real_ended(self, op, value, error)

    patch.setattr(EffectRunner, "_intend", intend)
    patch.setattr(EffectRunner, "_ended", ended)


def live_is_not_replay(patch: pytest.MonkeyPatch) -> None:
    """A living flow gets the value itself, a replayed one what the record decodes to."""
    raw: dict[Op, object] = {}
    real_returned, real_outcome = StepRunner._returned, comparing.outcome_of

    def returned(self: StepRunner, op: Op, value: object) -> None:
        raw[op] = value
        real_returned(self, op, value)

    def outcome_of(op: Op, event: Event) -> tuple[Any, BaseException | None]:
        return (raw.pop(op), None) if op in raw else real_outcome(op, event)

    patch.setattr(StepRunner, "_returned", returned)
    patch.setattr(comparing, "outcome_of", outcome_of)


def key_claim_off(patch: pytest.MonkeyPatch) -> None:
    """A key that another effect holds is used all the same."""
    real = KeyClaims._settled

    def settled(self: KeyClaims, op: Op, answer: Answer) -> None:
        real(self, op, None if isinstance(answer, Conflict) else answer)

    patch.setattr(KeyClaims, "_settled", settled)


def exception_means_nothing(patch: pytest.MonkeyPatch) -> None:
    """An effect that raised is taken to have done nothing."""
    patch.setattr(effects, "_nothing_happened", lambda op, error: True)


def skew_ignored(patch: pytest.MonkeyPatch) -> None:
    """Everybody goes by the clock of their own machine, whatever the store's server says."""
    patch.setattr(RemoteClock, "now_ms", lambda self: self._own.now_ms())


def tag_index_stale(patch: pytest.MonkeyPatch) -> None:
    """Tags are indexed when a run begins, and no longer when they change."""
    kept = tuple(each for each in sqlite_schema._TABLES if "TRIGGER tags_of_moved" not in each)
    assert len(kept) == len(sqlite_schema._TABLES) - 1, "the trigger has moved"
    patch.setattr(sqlite_schema, "_TABLES", kept)


MUTANTS = {
    mutant.name: mutant
    for mutant in (
        Mutant(name="fencing off", apply=fencing_off),
        Mutant(name="tag index stale", apply=tag_index_stale, is_simulated=False),
        Mutant(name="intent after effect", apply=intent_after_effect),
        Mutant(name="acknowledge before sync", apply=acknowledge_before_sync),
        Mutant(name="seq check off", apply=seq_check_off),
        Mutant(name="chain check off", apply=chain_check_off, is_simulated=False),
        Mutant(name="replay order off", apply=replay_order_off),
        Mutant(name="live is not replay", apply=live_is_not_replay),
        Mutant(name="key claim off", apply=key_claim_off),
        Mutant(name="repeat answered done after takeover", apply=repeat_after_takeover),
        Mutant(name="exception taken as nothing happened", apply=exception_means_nothing),
        Mutant(name="skew ignored", apply=skew_ignored),
        Mutant(name="living parent ignored", apply=retention.living_parent_ignored),
        Mutant(name="header believed", apply=retention.header_believed, is_simulated=False),
        Mutant(name="living fork ignored", apply=retention.living_fork_ignored),
        Mutant(name="tombstone not left", apply=retention.tombstone_not_left),
        Mutant(name="archived after deletion", apply=retention.archived_after_deletion),
        Mutant(name="keys of deleted runs forgotten", apply=retention.keys_forgotten),
        Mutant(name="mail lost at park", apply=waits.mail_lost_at_park),
        Mutant(name="signal out of order", apply=waits.signal_out_of_order),
        Mutant(name="mail check off", apply=waits.mail_check_off),
        Mutant(name="sealed mail check off", apply=waits.sealed_mail_check_off),
        Mutant(name="answer taken twice", apply=waits.answer_taken_twice),
        Mutant(name="text not compared", apply=waits.text_not_compared, is_simulated=False),
        Mutant(name="undo before settling", apply=waits.undo_before_settling),
        Mutant(name="undone in order", apply=waits.undone_in_order),
        Mutant(name="deadline ignored after restart", apply=waits.deadline_ignored_after_restart),
        Mutant(name="child notified never", apply=waits.child_notified_never),
        Mutant(name="parent told too early", apply=waits.parent_told_too_early),
        Mutant(name="carry drops mail", apply=waits.carry_drops_mail),
        Mutant(name="instant not in the id", apply=waits.instant_not_in_the_id, is_simulated=False),
        Mutant(name="redaction off", apply=redaction.redaction_off, is_simulated=False),
        Mutant(name="node hash off", apply=values.hash_not_verified, is_simulated=False),
        Mutant(name="node without its commit", apply=values.node_without_its_commit),
        Mutant(
            name="boundaries by position", apply=values.boundaries_by_position, is_simulated=False
        ),
        Mutant(
            name="outcome outside the transaction",
            apply=transactions.outcome_outside_the_transaction,
            is_simulated=False,
        ),
        Mutant(name="epoch not held", apply=transactions.epoch_not_held, is_simulated=False),
        Mutant(
            name="stream doubled on retry",
            apply=streams.stream_doubled_on_retry,
            is_simulated=False,
        ),
        Mutant(name="reset lost", apply=streams.reset_lost, is_simulated=False),
        Mutant(
            name="publish visible before its commit",
            apply=streams.published_before_its_commit,
            is_simulated=False,
        ),
        Mutant(
            name="place follows the task",
            apply=places.place_follows_the_task,
            is_simulated=False,
        ),
        Mutant(
            name="calls in a place not told apart",
            apply=places.calls_not_told_apart,
            is_simulated=False,
        ),
        Mutant(
            name="do runs again on replay",
            apply=places.do_runs_again_on_replay,
            is_simulated=False,
        ),
        Mutant(name="shape of another function", apply=places.shape_of_another, is_simulated=False),
        Mutant(name="cleanup on replay", apply=places.cleanup_on_replay, is_simulated=False),
        Mutant(
            name="outcome not looked up",
            apply=transactions.outcome_not_looked_up,
            is_simulated=False,
        ),
        Mutant(
            name="group commit acknowledges early",
            apply=logs.group_commit_acknowledges_early,
            is_simulated=False,
        ),
        Mutant(
            name="refused by what is not durable",
            apply=logs.refused_by_what_is_not_durable,
            is_simulated=False,
        ),
        Mutant(
            name="journals committed apart",
            apply=logs.journals_committed_apart,
            is_simulated=False,
        ),
        Mutant(
            name="stale view decides",
            apply=logs.stale_view_decides,
            is_simulated=False,
        ),
        Mutant(
            name="window ignored",
            apply=logs.window_ignored,
            is_simulated=False,
        ),
    )
}
