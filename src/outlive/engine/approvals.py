"""What humans granted in one chapter of a run: this effect, with these arguments, once.

Once an effect was put to a human, every call of it needs a grant of its own. The flow asks and
calls in the same order on replay, so nothing of this needs an event.
"""

from __future__ import annotations

from collections import Counter

from outlive.errors import NotApproved


class Approvals:
    """The grants of one run."""

    def __init__(self) -> None:
        #: By effect that was put to a human: what was granted and not used, by arguments' digest.
        self._unused: dict[str, Counter[bytes]] = {}

    def put(self, effect: str) -> None:
        """From here on the effect needs grants."""
        self._unused.setdefault(effect, Counter())

    def grant(self, effect: str, digest: bytes) -> None:
        """A human said yes."""
        self._unused[effect][digest] += 1

    def needs(self, effect: str) -> bool:
        """Whether calls of the effect need grants."""
        return effect in self._unused

    def use(self, effect: str, digest: bytes, step: str) -> None:
        """The effect is called.

        Raises:
            NotApproved: it was put to a human, and there is no grant for this call.
        """
        unused = self._unused.get(effect)
        if unused is None:
            return
        if not unused[digest]:
            raise NotApproved(effect, step)
        unused[digest] -= 1
