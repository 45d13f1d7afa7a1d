"""What a plan is made of: contestants, and works at sizes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

Store = Literal["sqlite", "postgres", "own"]
Chapter = Literal["sqlite", "postgres"]


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """A program, the environment it runs in, and what it promises."""

    name: str
    title: str
    #: A folder below .bench/, or none for the project's own environment.
    environment: str = ""
    module: str
    kind: str = ""
    #: Where its runs are kept: a file in its folder, a database that it is given, its own server.
    store: Store = "sqlite"
    #: How long a run is its dead driver's: whoever goes on from it begins when that is over.
    lease_seconds: int = 0
    #: What was durable before the next step began.
    durable: str
    #: Of its curves.
    colour: str

    @property
    def chapter(self) -> Chapter:
        """The part of the page that it is told in."""
        return "sqlite" if self.store == "sqlite" else "postgres"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One work at one size, and who takes part."""

    work: str
    size: int
    contestants: tuple[str, ...]
    #: The name of the work that records what this one goes on from, made once and copied.
    prepared: str = ""
    #: In the first round alone: a point of a curve that no goal looks at, or a slow peer's.
    once: bool = False

    def among(self, names: Collection[str]) -> Case:
        """The same with those alone."""
        return replace(self, contestants=tuple(n for n in self.contestants if n in names))


def cases(work: str, sizes: tuple[int, ...], contestants: tuple[str, ...]) -> list[Case]:
    """The same work at several sizes."""
    return [Case(work=work, size=size, contestants=contestants) for size in sizes]


def resumed(past: str, sizes: tuple[int, ...], contestants: tuple[str, ...]) -> list[Case]:
    """Cases that go on from a store whose process died."""
    return [
        replace(case, prepared=f"prepare-{past}")
        for case in cases(f"resume-{past}", sizes, contestants)
    ]


def once(wanted: list[Case]) -> list[Case]:
    """These, in the first round alone."""
    return [replace(case, once=True) for case in wanted]
