"""What an uninterrupted run of each flow could have returned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import outlive
from tests.order.flows import (
    Seen,
    completed,
    completed_branches,
    drawn,
    failing_group,
    first_completed,
    gathered,
    gathered_steps,
    generated,
    grouped,
    limited,
    locked,
    nested,
    queued,
    retried,
    risked,
    sleeping,
    tasks,
    waited_for,
)


def orders(*chains: list[Any]) -> Callable[[Seen], bool]:
    """Whether the chains were merged: each complete, each in its own order."""

    def fits(seen: Seen) -> bool:
        rest = [list(chain) for chain in chains]
        for each in seen:
            chain = next((chain for chain in rest if chain and chain[0] == each), None)
            if chain is None:
                return False
            chain.pop(0)
        return not any(rest)

    return fits


def _first_completed_fits(seen: Seen) -> bool:
    names = [name for group in seen[:-1] for name in group]
    return len(names) == 3 and set(names) < set("ABCD") and seen[-1] == "END"


def _waited_for_fits(seen: Seen) -> bool:
    fits = len(seen) == 6
    for name, got, after in zip("abc", seen[::2], seen[1::2], strict=True):
        fits &= got in (name.upper(), f"{name} timed out", f"late {name}")
        fits &= after == f"{name} after".upper()
    return fits


def _failing_fits(seen: Seen) -> bool:
    """Every branch is a beginning of its chain, then cancelled or complete; the error is last."""
    fits = seen[-1] == ["y"]
    for name in "abc":
        chain = [name.upper(), f"sent {name}", f"{name} after".upper()]
        own = [each for each in seen if each in (*chain, f"cancelled {name}")]
        fits &= own in ([*chain[:n], f"cancelled {name}"] for n in range(3)) or own == chain
    return fits


def _limited_fits(seen: Seen) -> bool:
    if seen[-1] != "END":
        return False
    body = seen[:-1]
    if body[-1] != "timed out":
        return orders(["A", "sent a"], ["B", "sent b"])(body)
    chains = (["A", "sent a"], ["B", "sent b"])
    beginnings = [(chains[0][:n], chains[1][:m]) for n in range(3) for m in range(3)]
    return any(orders(one, other)(body[:-1]) for one, other in beginnings)


def _sleeping_fits(seen: Seen) -> bool:
    sleeps = [each for each in seen if each not in ("A", "B")]
    return {"A", "B"} < set(seen) and sleeps == [0.001, 0.003, "durable", 0.005]


def _queued_fits(seen: Seen) -> bool:
    return sorted(name for _, name, _ in seen) == ["A", "B", "C", "D"] and all(
        taken == f"{name} taken".upper() for _, name, taken in seen
    )


def _locked_fits(seen: Seen) -> bool:
    rest = [each for each in seen if each != "open"]
    inside = [[name, f"{name} inside".upper()] for name in "abc"]
    chains = [[pair, name] for pair, name in zip(inside, "abc", strict=True)]
    opened = seen.index("open")
    return orders(*chains)(rest) and not any(isinstance(each, str) for each in seen[:opened])


def _risked_fits(seen: Seen) -> bool:
    fates = [
        [end for end in (f"risked {name}", f"lost {name}", f"cancelled {name}") if end in seen]
        for name in "abcde"
    ]
    ends = [end for fate in fates for end in fate]
    return (
        all(len(fate) == 1 for fate in fates)
        and sorted(seen) == sorted([*ends, "failed"])
        and not {"cancelled a", "cancelled b"} & set(seen)
    )


def _generated_fits(seen: Seen) -> bool:
    chains: list[list[Any]] = [["0", "1", "2"], ["KEPT"]]
    slow: list[list[Any]] = [["0", "1", "2"], ["too slow", "KEPT"]]
    return orders(*chains)(seen) or orders(*slow)(seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A flow, and whether a run of it could have returned this."""

    flow: outlive.Flow[[], Any]
    fits: Callable[[Any], bool]

    @property
    def name(self) -> str:
        return self.flow.name


CASES = [
    Case(
        flow=gathered,
        fits=lambda got: (
            orders(*([n.upper(), f"{n}2".upper()] for n in "abc"))(got[0])
            and got[1] == ["A2", "B2", "C2"]
        ),
    ),
    Case(flow=gathered_steps, fits=lambda got: got == ["A", "sent b", "C", "sent d", "A"]),
    Case(
        flow=nested,
        fits=lambda got: (
            sorted(got) == sorted(["A1", "A2", "B1", "B2", "C", "a", "b"])
            and got.index("a") > max(got.index("A1"), got.index("A2"))
            and got.index("b") > max(got.index("B1"), got.index("B2"))
        ),
    ),
    Case(flow=grouped, fits=orders(["A", "sent a"], ["B", "sent b"], ["OWN"])),
    Case(flow=failing_group, fits=_failing_fits),
    Case(
        flow=tasks,
        fits=lambda got: (
            sorted(got[:-1]) == sorted([*"AABBCC", "third"]) and isinstance(got[-1], bool)
        ),
    ),
    Case(flow=first_completed, fits=_first_completed_fits),
    Case(flow=completed, fits=lambda got: sorted(got) == list("ABCDE")),
    Case(
        flow=completed_branches,
        fits=lambda got: (
            sorted(got[0]) == ["AA2", "BB2", "CC2"]
            and tuple(got[1]) in permutations(["DD2", "EE2"])
        ),
    ),
    Case(flow=waited_for, fits=_waited_for_fits),
    Case(flow=limited, fits=_limited_fits),
    Case(flow=sleeping, fits=_sleeping_fits),
    Case(flow=queued, fits=_queued_fits),
    Case(flow=locked, fits=_locked_fits),
    Case(flow=retried, fits=orders(["p at 3"], ["refused r"], ["S0", "S1", "S2"])),
    Case(flow=risked, fits=_risked_fits),
    Case(flow=drawn, fits=lambda got: len(got) == 3 and 0 <= got[-1] < 1),
    Case(flow=generated, fits=_generated_fits),
]
