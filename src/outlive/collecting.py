"""What a store may offer to those who look for nodes that nobody will name again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class Collecting(Protocol):
    """A store whose nodes can be looked through by family."""

    async def families(self, after: str, limit: int) -> Sequence[str]:
        """Families that have nodes, in an order of their own: the next ones behind ``after``."""
        ...

    async def without_runs(self, families: Sequence[str]) -> Sequence[str]:
        """Those of these families that no run belongs to."""
        ...

    async def drop_family(self, family: str) -> bool:
        """Forget all nodes of a family; False, and nothing is forgotten, if it has a run."""
        ...
