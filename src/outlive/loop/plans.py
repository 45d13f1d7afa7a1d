"""Plans in an order in which a crash is cheap: what can't be repeated comes last.

Until the first such action everything can be decided anew. Only what needs the outcome of one of
them has to stay behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from outlive.engine.definitions import Effect
from outlive.errors import DefinitionRefused

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Arranged(Generic[S]):
    """A plan in its new order, and why."""

    #: All actions of the plan that was given.
    plan: list[S]
    #: A sentence for each action that does not stand where it stood.
    why: list[str]


def arrange(
    plan: Sequence[S],
    tool: Callable[[S], Any],
    needs: Callable[[S], Collection[int]] | None = None,
) -> Arranged[S]:
    """The same actions, those that can't be repeated last.

    ``tool`` says what carries an action out: an effect can't be repeated, a step or any other
    function can; or it answers itself, with True for what can be repeated. ``needs`` gives the
    positions in the plan of actions whose outcome an action needs: it stays behind them.

    Raises:
        DefinitionRefused: an action needs one that does not come before it.
    """
    held: dict[int, str] = {}
    for position, action in enumerate(plan):
        needed = _checked(position, () if needs is None else needs(action))
        if not _is_repeatable(tool(action)):
            held[position] = (
                "it can't be repeated: a crash before it means deciding again, not acting again"
            )
        elif behind := [each for each in needed if each in held]:
            held[position] = f"it needs the outcome of action {behind[-1] + 1}, which is held back"
    order = [at for at in range(len(plan)) if at not in held] + list(held)
    why = [
        f"action {old + 1} ({plan[old]!r}) comes {'last' if last else f'at {new + 1}'}: {held[old]}"
        for new, old in enumerate(order)
        if old in held and new != old
        for last in [new == len(order) - 1]
    ]
    return Arranged([plan[at] for at in order], why)


def _is_repeatable(tool: Any) -> bool:
    return tool if isinstance(tool, bool) else not isinstance(tool, Effect)


def _checked(position: int, needed: Collection[int]) -> list[int]:
    for each in needed:
        if not 0 <= each < position:
            raise DefinitionRefused(
                f"action {position + 1} of the plan needs the one at {each}; "
                "positions count from 0, and what is needed comes before"
            )
    return sorted(needed)
