"""Known-bad variants of exchanging messages, of taking cuts and of restoring them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from outlive.checkpoints import decide as deciding
from outlive.checkpoints.agents import cuts
from outlive.checkpoints.agents.agents import Agents, MessageLedger, fitting
from outlive.checkpoints.agents.cuts import Cut, Cuts
from outlive.checkpoints.agents.exchange import Exchange
from outlive.model.checkpoints import Checkpoints


def newest_states_are_cut(patch: pytest.MonkeyPatch) -> None:
    """Whether states fit together is not asked."""

    def newest(columns: Mapping[str, Sequence[MessageLedger]]) -> dict[str, int]:
        return {name: len(column) - 1 for name, column in columns.items()}

    patch.setattr(cuts, "fitting", newest)


def drops_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """A receiver may be older than what its sender has dropped on its word."""

    def lax(columns: Mapping[str, Sequence[MessageLedger]]) -> dict[str, int] | None:
        return fitting({name: [_undropped(each) for each in c] for name, c in columns.items()})

    patch.setattr(cuts, "fitting", lax)


def _undropped(ledger: MessageLedger) -> MessageLedger:
    return replace(ledger, kept={peer: [None] * count for peer, count in ledger.sent.items()})


def in_flight_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A cut is restored with states alone: what was under way counts as taken."""
    real = Cuts.restore

    async def restore(self: Cuts, cut: Cut) -> None:
        agents = {
            name: at and replace(at, metadata=dict(at.metadata)) for name, at in cut.agents.items()
        }
        ledgers = {name: cuts._ledger(at) for name, at in agents.items()}
        for name, at in agents.items():
            if at is not None:
                taken = {peer: ledger.sent.get(name, 0) for peer, ledger in ledgers.items()}
                bare = replace(ledgers[name], kept={}, taken=taken)
                at.metadata[cuts.LEDGER] = bare.as_value()
        await real(self, replace(cut, agents=agents))

    patch.setattr(Cuts, "restore", restore)


def zombies_may_save(patch: pytest.MonkeyPatch) -> None:
    """Who has an agent is not asked when it is saved."""
    patch.setattr(Checkpoints, "check_holder", lambda self, run_id, holder: None)


def taken_is_not_saved(patch: pytest.MonkeyPatch) -> None:
    """What was taken is saved with the next state, not with this one."""
    real = Exchange.checkpoint
    before: dict[Exchange, dict[str, int]] = {}

    async def checkpoint(self: Exchange, *args: Any, **kwargs: Any) -> Any:
        now = dict(self._taken)
        self._taken = before.get(self, dict(self._taken))
        saved = await real(self, *args, **kwargs)
        self._taken, before[self] = now, dict(now)
        return saved

    patch.setattr(Exchange, "checkpoint", checkpoint)


def dropped_when_seen(patch: pytest.MonkeyPatch) -> None:
    """What was sent before is dropped as soon as the next message is sent."""
    real = Exchange.send

    def send(self: Exchange, to: str, message: Any) -> int:
        self._kept.get(to, []).clear()
        return real(self, to, message)

    patch.setattr(Exchange, "send", send)


def restore_begins_anew(patch: pytest.MonkeyPatch) -> None:
    """An agent that is there already is put there once more."""

    async def put(self: Agents, run_id: str, draft: Any) -> None:
        run = self._journals.run(run_id)

        def decide(fold: Checkpoints) -> Any:
            return deciding.save(replace(run, holder=fold.holder), draft)(fold)

        await self._journals.append(run_id, decide, lambda fold: None)

    patch.setattr(Agents, "put", put)


def half_a_restore_is_enough(patch: pytest.MonkeyPatch) -> None:
    """Agents begin whether all of them are restored or not."""

    async def finish_for(self: Cuts, run_id: str) -> None:
        pass

    patch.setattr(Cuts, "finish_for", finish_for)


Mutant = Callable[[pytest.MonkeyPatch], None]
MUTANTS: dict[str, Mutant] = {
    mutant.__name__: mutant
    for mutant in (
        newest_states_are_cut,
        drops_are_ignored,
        in_flight_is_forgotten,
        zombies_may_save,
        taken_is_not_saved,
        dropped_when_seen,
        restore_begins_anew,
        half_a_restore_is_enough,
    )
}
