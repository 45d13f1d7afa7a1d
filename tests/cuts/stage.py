"""One thread on which many act by turns that a seed decides, and may be killed at each.

An actor is a coroutine with a view of its own on the store, as a process has. It gives its turn
away before and after each call of the store, and there it can be closed, as a process that is
killed never comes back. Nothing here is a real loop: the store never waits, so whatever is awaited
is a turn.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from random import Random
from types import coroutine
from typing import Any, TypeVar

from outlive.checkpoints.backends import StorageBackend
from outlive.checkpoints.store import SnapshotStore
from outlive.errors import LeaseLost
from outlive.ports import Ports
from outlive.stores.seam import Store

T = TypeVar("T")

#: More turns than any play takes; one that takes them hangs.
TURNS_MAX = 20_000


@coroutine
def turn() -> Generator[None, None, None]:
    """Let somebody else act first."""
    yield


class ByTurns:
    """A store whose verbs give the turn away before and after they act."""

    def __init__(self, store: Store) -> None:
        self._store, self.clock = store, store.clock

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)

        async def act(*args: Any, **kwargs: Any) -> Any:
            await turn()
            answer = await verb(*args, **kwargs)
            await turn()
            return answer

        return act


class OnTheSpot:
    """Work is carried out where one stands, also what may take long."""

    async def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        return await work

    begin_here = __call__


class Here(StorageBackend):
    """A store that is called where one stands, on no thread of its own."""

    def __init__(self, store: Any, ports: Ports) -> None:
        super().__init__(ports=ports)
        self._here = store

    async def opened(self) -> tuple[Store, Any]:
        return self._here, OnTheSpot()


def view(store: Any, ports: Ports) -> SnapshotStore:
    """The snapshots of a store as one process sees them."""
    return SnapshotStore(Here(store, ports))


Part = Callable[[], Coroutine[Any, Any, object]]


class Stage:
    """Actors, and who of them is next."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.turns = self.kills = self.twins = self.zombies = 0
        self._actors: list[tuple[Part, Coroutine[Any, Any, object]]] = []

    def enter(self, part: Part) -> None:
        """Another actor, with what it plays from the start if it is killed."""
        self._actors.append((part, part()))

    @property
    def is_empty(self) -> bool:
        """Everybody has come to the end."""
        return not self._actors

    def act(self) -> None:
        """One turn of one actor."""
        self.turns += 1
        assert self.turns < TURNS_MAX, "it goes on for ever"
        at = self.chance.randrange(len(self._actors))
        try:
            self._actors[at][1].send(None)
        except StopIteration:
            del self._actors[at]
        except LeaseLost:
            self.zombies += 1  # somebody else has the agent
            del self._actors[at]

    def kill_one(self) -> None:
        """Somebody dies, and begins again from what is saved."""
        at = self.chance.randrange(len(self._actors))
        part, actor = self._actors[at]
        actor.close()
        self._actors[at] = (part, part())
        self.kills += 1

    def double_one(self) -> None:
        """Somebody is taken for dead, and is not."""
        self.enter(self.chance.choice(self._actors)[0])
        self.twins += 1

    def close(self) -> None:
        """Everybody leaves."""
        for _, actor in self._actors:
            actor.close()
        self._actors.clear()
