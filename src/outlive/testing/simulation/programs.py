"""Random programs for the simulated flow: every leaf, every way of running things side by side."""

from __future__ import annotations

import random
from typing import Any

from outlive.testing.simulation.flows import EFFECTS, SIGNALS, UNDOABLE, Node

DEPTH_MAX = 3
CHAPTERS_MAX = 3
#: The depth of a family of runs.
GENERATIONS_MAX = 2
_SIDE_BY_SIDE = ("gather", "group", "first", "as_completed", "queue")
_OWN = [name for name in EFFECTS if name.startswith(("pay", "wire"))]
_UNDONE = sorted(UNDOABLE)
_SHARED = [name for name in EFFECTS if name.startswith("order")]


def make_programs(rng: random.Random, wanted: str) -> list[list[Node]]:
    """The programs of a seed's runs; ``wanted`` is a kind of event that should come up."""
    count = rng.choice((2, 2, 3, 3, 4, 5))
    maker = _Maker(rng)
    programs = [maker.program() for _ in range(count)]
    for program in programs[: rng.choice((1, 2))]:
        program.insert(rng.randrange(len(program) + 1), maker.bringing(wanted))
    if wanted in ("RunFailed", "RunUndoing"):
        programs[0].append(["fail"])
    return programs


class _Maker:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._orders = 0
        self._generation = 0

    def program(self) -> list[Node]:
        size = self._rng.choice((1, 2, 3, 3, 4))
        program = [self._guarded(0) for _ in range(size)]
        if self._rng.random() < 0.15:
            program.append(["fail"])
        elif self._rng.random() < 0.15:
            program.append(self._next_chapter())
        return program

    def _next_chapter(self) -> Node:
        """The same flow with another program, at times while other branches still wait."""
        self._generation += 1
        rest = [self._guarded(1) for _ in range(self._rng.choice((1, 2)))]
        if self._generation < CHAPTERS_MAX and self._rng.random() < 0.4:
            rest.append(self._next_chapter())
        self._generation -= 1
        if self._rng.random() < 0.3:
            return ["gather", [["carry", rest, False], self._node(2), self._undone()]]
        return ["carry", rest, True]

    def _child(self) -> list[Node]:
        """The program of a child: shorter, and childless from some depth on."""
        self._generation += 1
        program = [self._guarded(2) for _ in range(self._rng.choice((1, 1, 2)))]
        self._generation -= 1
        if self._rng.random() < 0.2:
            program.append(["fail"])
        return program

    def bringing(self, wanted: str) -> Node:
        """A node at which events of this kind are likely."""
        match wanted:
            case "KeyHeld" | "KeyKept":
                return ["gather", [self._shared(), self._shared()]]
            case "AttemptFailed":
                return ["try", ["gather", [["step", "think", "flaky"], self._own()]]]
            case "StepRaised":
                return ["try", ["step", "ponder", "hopeless"]]
            case "EffectDoubted" | "EffectRaised" | "MailRead":
                asked = ["effect", "pay_asked", self._order(), False]
                failing = ["effect", "pay_failing", self._order(), False]
                return ["gather", [asked, failing, self._own()]]
            case "Parked" | "TimerFired":
                return ["sleep", self._rng.choice((1.0, 5.0, 3600.0))]
            case _:
                return self._bringing_others(wanted)

    def _bringing_others(self, wanted: str) -> Node:
        """The same for what others have a part in."""
        match wanted:
            case "SignalReceived" | "Replied":
                return ["gather", [self._signal(), self._requests()]]
            case "QuestionAsked" | "Answered":
                return ["gather", [["ask", "Go on?", None], self._approve()]]
            case "QuestionClosed":
                return ["gather", [["limit", self._limit(), ["ask", "Soon?", None]], self._own()]]
            case "RunUndoing" | "RunCancelled" | "CancelRequested" | "DeadlinePassed":
                return ["all", [self._undone(), ["gather", [self._undone(), self._signal()]]]]
            case "ChapterBegan":
                return self._next_chapter()
            case "RunRetried":
                # Fails of itself, or of something that is another time better.
                return self._rng.choice((["step", "think", "flaky"], ["fail"], ["ask", "?", 0.4]))
            case "Patched":
                return ["patched", "faster", self._leaf()]
            case "ChildIntended" | "ChildSpawned" | "ChildEnded" | "ParentTold":
                return ["gather", [["call", self._child()], ["spawn", self._child()]]]
            case _:
                return ["try", self._own()]

    def _guarded(self, depth: int) -> Node:
        node = self._node(depth)
        return node if self._rng.random() < 0.15 else ["try", node]

    def _node(self, depth: int) -> Node:
        drawn = self._rng.random()
        if depth >= DEPTH_MAX or drawn < 0.55:
            return self._leaf()
        if drawn < 0.65:
            kind = self._rng.choice(("timeout", "wait_for", "limit"))
            return [kind, self._limit(), self._node(depth + 1)]
        if drawn < 0.72:
            return ["all", [self._node(depth + 1) for _ in range(2)]]
        kind = self._rng.choice(_SIDE_BY_SIDE)
        nodes = [self._node(depth + 1) for _ in range(self._rng.choice((2, 2, 3)))]
        extra: list[Any] = [self._rng.random() < 0.6] if kind == "first" else []
        return [kind, nodes, *extra]

    def _limit(self) -> float:
        return round(self._rng.uniform(0.05, 2.5), 3)

    def _within(self) -> float | None:
        return self._rng.choice((None, None, 0.4, 3.0, 30.0, 3600.0))

    def _signal(self) -> Node:
        return ["signal", self._rng.choice(SIGNALS), self._within()]

    def _requests(self) -> Node:
        return ["requests", self._rng.choice((1, 2, 3)), self._within(), self._leaf()]

    def _approve(self) -> Node:
        return ["approve", self._order(), self._within()]

    def _undone(self) -> Node:
        return ["effect", self._rng.choice(_UNDONE), self._order(), False]

    def _other(self) -> Node:
        """Something that others have a part in."""
        if self._rng.random() < 0.5 or self._generation >= GENERATIONS_MAX:
            makers = (self._signal, self._requests, self._approve)
            return self._rng.choice((["ask", "Well?", self._within()], *(m() for m in makers)))
        kind = self._rng.choice(("call", "call", "spawn", "map_flows", "map_steps", "map_effects"))
        count, room = self._rng.choice((1, 2, 3)), self._rng.choice((1, 2))
        if kind == "map_flows":
            return [kind, [self._child() for _ in range(count)], room]
        if kind == "map_steps":
            return [kind, [self._rng.choice(("ok", "flaky", "hopeless")) for _ in "1234"], room]
        if kind == "map_effects":
            return [kind, [self._order() for _ in range(count)], room]
        return [kind, self._child()]

    def _leaf(self) -> Node:
        if self._rng.random() < 0.25:
            return self._other()
        if self._rng.random() < 0.15:
            return self._undone()
        drawn = self._rng.random()
        if drawn < 0.06:
            return ["notes", self._rng.choice((1, 4, 9)), self._rng.choice((3, 99))]
        if drawn < 0.34:
            how = self._rng.choice(("ok", "ok", "ok", "flaky", "slow", "hopeless"))
            return ["step", self._rng.choice(("think", "think", "ponder")), how]
        if drawn < 0.68:
            return self._own()
        if drawn < 0.78:
            return self._shared()
        if drawn < 0.86:
            return ["sleep", self._rng.choice((0.3, 2.0, 8.0, 3600.0))]
        if drawn < 0.92:
            return ["nap", round(self._rng.uniform(0.01, 1.5), 3)]
        return self._rng.choice((["draw"], ["recall"], ["patched", "new", self._own()]))

    def _order(self) -> str:
        self._orders += 1
        return f"own-{self._orders}"

    def _own(self) -> Node:
        return ["effect", self._rng.choice(_OWN), self._order(), False]

    def _shared(self) -> Node:
        """One of a few keys, so that runs meet; at times with arguments of its own."""
        name = self._rng.choice(_SHARED)
        order = f"{name}-{self._rng.choice('ab')}"
        return ["effect", name, order, self._rng.random() < 0.9]
