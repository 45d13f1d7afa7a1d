"""The script of the demo: the kills, the lines about two sides, and a tally of each."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenLine:
    """One line on the screen: a mark, a name, its subject, a detail."""

    mark: str
    name: str
    text: str = ""
    detail: str = ""
    style: str = ""
    detail_style: str = "dim"


@dataclass(slots=True, kw_only=True)
class Tally:
    """The progress of a side, and its result at the end."""

    title: str
    #: The content of its column.
    shows: str
    style: str
    kills_planned: int
    kills: int = 0
    model_calls: int = 0
    requests: int = 0
    refunds: int = 0
    mails: int = 0
    #: Only a run with a journal can replay.
    steps_replayed: int | None = None
    model_calls_saved: int | None = None
    seconds: float = 0.0
    outcome: str = ""
    #: Faults in the outcome.
    faults: list[str] = field(default_factory=list)

    @property
    def steps_run(self) -> int:
        """Bodies that were begun: every model call, every request to a desk."""
        return self.model_calls + self.requests


KILLS_MIN = 6
SEED_MAX = 9999
#: A kill "right after" something comes within this time.
RIGHT_AFTER_SECONDS = 0.04


class Moment(Enum):
    """A moment at which an agent may be killed; the value is the text shown."""

    PLANNING = "while the model plans"
    SEARCHING = "between two search answers"
    SEARCHED = "right after the last search"
    DECIDING = "while the model decides"
    REFUND_ASKED = "while the bank considers"
    REFUND_MADE = "by the bank, after paying"
    WRITING = "while the model writes"
    MAIL_SENT = "letter sent, reply pending"
    CLOSING = "while the model closes"


#: In the middle of one model call, by the call's task.
IN_CALL = {
    "plan": Moment.PLANNING,
    "decide": Moment.DECIDING,
    "write": Moment.WRITING,
    "close": Moment.CLOSING,
}
BETWEEN = (Moment.SEARCHED, Moment.REFUND_ASKED, Moment.MAIL_SENT)
AFTER_REFUND = (Moment.WRITING, Moment.MAIL_SENT, Moment.CLOSING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One SIGKILL: at a moment, with a delay."""

    moment: Moment
    #: The share of the call, or of the time right after, at which it comes.
    fraction: float
    #: SEARCHING only: after so many answers.
    answers: int

    def delay_seconds(self, think_seconds: float) -> float:
        """From the moment to the signal, when a model call takes so long."""
        in_call = self.moment in IN_CALL.values()
        return self.fraction * (think_seconds if in_call else RIGHT_AFTER_SECONDS)


def plan_kills(seed: int) -> list[Kill]:
    """The kills of a seed in their order: six to eight, the bank's always among them."""
    chance = random.Random(seed)
    moments = _pick(chance)
    return [
        Kill(moment=each, fraction=chance.uniform(0.2, 0.8), answers=chance.randint(1, 3))
        for each in moments
    ]


def _pick(chance: random.Random) -> list[Moment]:
    others = [moment for moment in Moment if moment is not Moment.REFUND_MADE]
    while True:
        picked = chance.sample(others, chance.randint(KILLS_MIN - 1, KILLS_MIN + 1))
        if _is_worth_showing(picked):
            return [m for m in Moment if m in picked or m is Moment.REFUND_MADE]


def _is_worth_showing(picked: Sequence[Moment]) -> bool:
    """Some in the middle of model calls, some between, some after the money went out."""
    kinds = (tuple(IN_CALL.values()), BETWEEN, AFTER_REFUND)
    return all(any(moment in kind for moment in picked) for kind in kinds)
