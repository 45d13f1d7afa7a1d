"""Agents that exchange messages, and cuts of them, for plain code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

from outlive.checkpoints import Cut, Message, RunSnapshot
from outlive.checkpoints import DurableRunner as AsyncRunner
from outlive.checkpoints import Exchange as AsyncExchange
from outlive.checkpoints import SnapshotStore as AsyncStore
from outlive.checkpoints import restore_cut as restore_cut_async
from outlive.model.retry import Duration

T = TypeVar("T")


class Waiting(Protocol):
    """A store for plain code: it awaits elsewhere, and waits here."""

    store: AsyncStore

    def wait(self, work: Callable[[], Awaitable[T]]) -> T:
        """Await this over there, and wait for it here."""
        ...


class Exchange:
    """One agent among others, for plain code; for one thread at a time."""

    def __init__(self, store: Waiting, exchange: AsyncExchange) -> None:
        self._store, self._exchange = store, exchange

    @property
    def run_id(self) -> str:
        """The agent's id."""
        return self._exchange.run_id

    @property
    def peers(self) -> tuple[str, ...]:
        """Those it exchanges messages with."""
        return self._exchange.peers

    @property
    def state(self) -> dict[str, Any] | None:
        """A copy of the state that was saved last; None: the agent has not begun."""
        return self._exchange.state

    @property
    def step_id(self) -> str | None:
        """The step at which it was saved last."""
        return self._exchange.step_id

    def send(self, to: str, message: Any) -> int:
        """Send a message, when the next state is saved; returns its number."""
        return self._exchange.send(to, message)

    def receive(self, timeout: Duration | None = None) -> Message | None:
        """The next message, of each sender in the order of sending; None: none in time."""
        return self._store.wait(partial(self._exchange.receive, timeout))

    def checkpoint(
        self, step_id: str, state: dict[str, Any], metadata: Mapping[str, Any] | None = None
    ) -> RunSnapshot:
        """Save the state with everything that was sent and taken since the last one."""
        return self._store.wait(partial(self._exchange.checkpoint, step_id, state, metadata))

    def look(self) -> None:
        """See what the peers have saved."""
        self._store.wait(self._exchange.look)

    def leave(self) -> None:
        """Let go of the agent, so that anybody may save or delete it; it can be opened again."""
        self._store.wait(self._exchange.leave)


class Exchanging:
    """The verbs of a runner that are about many agents, for plain code."""

    def __init__(self, store: Waiting, runner: AsyncRunner) -> None:
        self.store, self._runner = store, runner

    def exchange(self, run_id: str, peers: Iterable[str]) -> Exchange:
        """Open an agent that exchanges messages with these; whoever had it open has it no more."""
        opened = self.store.wait(partial(self._runner.exchange, run_id, peers))
        return Exchange(self.store, opened)

    def cut(self, run_ids: Iterable[str], name: str | None = None) -> Cut:
        """One state of many agents, with the messages under way; the same name: the same cut."""
        return self.store.wait(partial(self._runner.cut, run_ids, name))

    def list_cuts(self) -> list[str]:
        """The names of the cuts that there are, the oldest first."""
        return self.store.wait(self._runner.list_cuts)

    def get_cut(self, name: str) -> Cut:
        """The cut of that name."""
        return self.store.wait(partial(self._runner.get_cut, name))

    def delete_cut(self, name: str) -> None:
        """Forget a cut; if it is not restored to its end, also the agents that it brought here."""
        self.store.wait(partial(self._runner.delete_cut, name))


def restore_cut(cut: Cut, *, into: Waiting | Exchanging) -> None:
    """Put the agents of a cut into another store, as one: all states, all messages under way."""
    store = into.store if isinstance(into, Exchanging) else into
    store.wait(partial(restore_cut_async, cut, into=store.store))
