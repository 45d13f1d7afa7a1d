"""What a run waits for that is not progress, and how people are told: once, then rarely.

A sleep is progress; a doubt, a question, a signal, a mismatch, a damaged journal or a missing
worker is not. Whoever waits for such a run and whoever drives it tell it through one ``Notices``,
as a warning of the logger "outlive", in one sentence with the command that helps. On a sealed store
the sentence names run, flow, step and kind, and nothing that was recorded.
"""

from __future__ import annotations

import logging
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from outlive.engine.place import Branch, Plain, place
from outlive.errors import InDoubt, ReplayMismatch, RunError, UsageError, ValueRefused, Waiting
from outlive.model.events import Fault, QuestionAsked, recorded_key
from outlive.model.run import OpenEffect, Run
from outlive.model.schema import example, wanted
from outlive.ports import Clock

logger = logging.getLogger("outlive")

Kind: TypeAlias = Literal["doubt", "question", "signal", "mismatch", "stopped", "unattended"]
#: What somebody who waits does about it: have it logged and wait on, or stop with an error.
OnWait: TypeAlias = Literal["log", "raise"]
#: What a run's reason begins with when code and journal do not fit.
MISMATCH: Final = "mismatch: "
#: Seconds from one telling of the same thing to the next; the last one goes on.
AGAIN_SECONDS: Final = (60.0, 600.0)
#: Runs whose waits are remembered as told.
REMEMBERED_MAX: Final = 10_000
TEXT_CHARS: Final = 300


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """What keeps a run from going on by itself."""

    kind: Kind
    run_id: str
    flow: str
    #: The effect, question or signal that it is about, if there is one.
    step: str = ""
    #: What was recorded about it.
    why: str = ""
    #: Of an effect.
    key: str = ""
    #: What to type, with what was recorded in it and without.
    command: str = ""
    bare_command: str = ""

    def sentence(self, *, secret: bool) -> str:
        """What people are told."""
        where = f"run {self.run_id} (flow {self.flow})"
        command = self.bare_command or self.command if secret else self.command
        return f"{where} {_SAID[self.kind](self, '' if secret else self.why, command)}"

    def error(self, *, secret: bool) -> RunError:
        """The same for somebody who does not want to wait for it."""
        said = self.sentence(secret=secret)
        if self.kind == "doubt":
            return InDoubt(self.step, self.key, self.why).of_run(self.run_id, said)
        about = {"step": self.step, "why": self.why, "command": self.command}
        return Waiting(said, run_id=self.run_id, flow=self.flow, kind=self.kind, **about)


def _say_doubt(wait: Wait, why: str, command: str) -> str:
    about = f" (key {wait.key}): {why}" if why else ""
    return (
        f"is in doubt about effect {wait.step}{about}; find out whether it happened, then "
        f"`{command} --happened JSON`, or --not-happened, or --fail"
    )


def _say_question(wait: Wait, why: str, command: str) -> str:
    asks = f"asks: {why}" if why else f"waits for an answer to question {wait.step}"
    return f"{asks}; answer with `{command}`"


def _say_signal(wait: Wait, why: str, command: str) -> str:
    return f"waits for {why or 'a signal'}: `{command}`"


def _say_stopped(wait: Wait, why: str, command: str) -> str:
    what = "code and journal do not fit" if wait.kind == "mismatch" else "its driver gave it back"
    return f"can't go on: {why or what}; `{command}` shows the run"


def _say_unattended(wait: Wait, why: str, command: str) -> str:
    return (
        "could be driven, and no living worker takes it; "
        f"start one that has this flow and version: `{command}`"
    )


_SAID = {
    "doubt": _say_doubt,
    "question": _say_question,
    "signal": _say_signal,
    "mismatch": _say_stopped,
    "stopped": _say_stopped,
    "unattended": _say_unattended,
}


class Notices:
    """Tells each wait at once, then rarely. One of an app."""

    def __init__(self, clock: Clock, *, secret: bool = False) -> None:
        self.clock = clock
        #: The store is sealed: nothing that was recorded is told.
        self.secret = secret
        #: By run and what it waits for: how often that was told, and when it may be told again.
        self._told: dict[tuple[str, Kind, str], tuple[int, float]] = {}
        #: Runs for whose waits somebody here gets an error instead.
        self._raised: Counter[str] = Counter()

    @contextmanager
    def raised(self, run_id: str) -> Iterator[None]:
        """Somebody who waits for this run is told by an error: it need not be logged."""
        self._raised[run_id] += 1
        try:
            yield
        finally:
            self._raised[run_id] -= 1
            self._raised += Counter()

    def tell(self, wait: Wait) -> None:
        """Log it, unless that was done not long ago."""
        if wait.run_id in self._raised:
            return
        place, now = (wait.run_id, wait.kind, wait.step), self.clock.monotonic()
        times, again_at = self._told.get(place, (0, now))
        if now < again_at:
            return
        pause = AGAIN_SECONDS[min(times, len(AGAIN_SECONDS) - 1)]
        self._told.pop(place, None)
        self._told[place] = (times + 1, now + pause)
        if len(self._told) > REMEMBERED_MAX:
            del self._told[next(iter(self._told))]
        logger.warning("%s", wait.sentence(secret=self.secret))

    def raise_or_tell(self, wait: Wait, on_wait: OnWait) -> None:
        """As whoever waits wants it.

        Raises:
            InDoubt: nobody knows whether an effect happened.
            Waiting: it waits for anything else.
        """
        if on_wait == "raise":
            raise wait.error(secret=self.secret)
        self.tell(wait)


def check_on_wait(on_wait: object) -> None:
    """Refuse anything else before a run is started."""
    if on_wait not in get_args(OnWait):
        raise UsageError(f'on_wait={on_wait!r}; it is "log" or "raise"')


def reason_of(error: Exception) -> str:
    """What the header of a run says that stopped because of this error."""
    is_misfit = isinstance(error, (ReplayMismatch, ValueRefused))
    return f"{MISMATCH if is_misfit else ''}{error}"


class Repeats(logging.Filter):
    """Keeps what flow code logs from being written again while its run is replayed.

    It stands at every handler there is while a run is replayed here, and nowhere otherwise: which
    logger a flow uses does not matter, and what anybody else logs goes through.
    """

    def __init__(self) -> None:
        super().__init__()
        self._replays = 0
        self._handlers: list[logging.Handler] = []

    def begin(self) -> None:
        """A run is replayed from here on."""
        self._replays += 1
        if self._replays == 1:
            self._handlers = _handlers()
            for handler in self._handlers:
                handler.addFilter(self)

    def end(self) -> None:
        """It has caught up, or left memory."""
        self._replays -= 1
        if not self._replays:
            for handler in self._handlers:
                handler.removeFilter(self)
            self._handlers = []

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this is news; what Outlive itself says always is."""
        here = place.get()
        if record.name == "outlive" or not isinstance(here, (Branch, Plain)):
            return True
        return not here.drive.is_replaying()


def _handlers() -> list[logging.Handler]:
    """Whatever writes log lines in this process."""
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    own = [each.handlers for each in loggers if isinstance(each, logging.Logger)]
    last = [logging.lastResort] if logging.lastResort is not None else []
    return list(dict.fromkeys([handler for some in own for handler in some] + last))


# what a journal tells


def wait_of(run_id: str, run: Run) -> Wait | None:
    """What keeps a run from going on by itself, as its journal stands; None: it goes on."""
    for step, effect in run.effects.items():
        if effect.asks:
            return doubt_of(run_id, run.start.flow, step, effect)
    if run.reason:
        return stopped_by(run_id, run.start.flow, run.reason)
    if not run.is_parked:
        return None
    if run.questions:
        return question_of(run_id, run.start.flow, list(run.questions.values()))
    if run.signals or (run.wake_at is None and not run.children):
        return signal_of(run_id, run.start.flow, run.signals)
    return None


def doubt_of(run_id: str, flow: str, step: str, effect: OpenEffect) -> Wait:
    """An effect that only a human can settle."""
    fault = effect.doubt
    cut = "its driver ended before it did"
    return Wait(
        kind="doubt",
        run_id=run_id,
        flow=flow,
        step=step,
        key=recorded_key(run_id, effect.intent),
        why=one_line(cut if fault is None else f"{fault.type_name}: {fault.message}"),
        command=f"outlive resolve {shlex.quote(run_id)} {shlex.quote(step)}",
    )


def question_of(run_id: str, flow: str, asked: Sequence[QuestionAsked]) -> Wait:
    """The first of the questions that a run asks."""
    first, more = asked[0], len(asked) - 1
    schema = msgspec.json.decode(first.schema) if first.schema else None
    named = f" --question {shlex.quote(first.question)}" if more else ""
    text = f"{one_line(first.text)} ({wanted(schema)}" + (f"; {more} more)" if more else ")")
    answer = f"outlive answer {shlex.quote(run_id)}"
    return Wait(
        kind="question",
        run_id=run_id,
        flow=flow,
        step=first.question,
        why=text,
        command=f"{answer} {example(schema)}{named}",
        bare_command=f"{answer} VALUE{named}",
    )


def signal_of(run_id: str, flow: str, names: Sequence[str]) -> Wait:
    """The signals that a run waits for; earlier releases did not write down which."""
    first = shlex.quote(names[0]) if names else "NAME"
    said = " or ".join(map(one_line, names))
    return Wait(
        kind="signal",
        run_id=run_id,
        flow=flow,
        step=" ".join(names),
        why=f"signal {said}" if names else "",
        command=f"outlive signal {shlex.quote(run_id)} {first} VALUE",
        bare_command=f"outlive signal {shlex.quote(run_id)} NAME VALUE",
    )


def stopped_by(run_id: str, flow: str, reason: str) -> Wait:
    """A run that its driver gave back, and why."""
    return Wait(
        kind="mismatch" if reason.startswith(MISMATCH) else "stopped",
        run_id=run_id,
        flow=flow,
        why=one_line(reason, 2 * TEXT_CHARS),
        command=f"outlive show {shlex.quote(run_id)}",
    )


def unattended(run_id: str, flow: str) -> Wait:
    """A run that could be driven and that nobody alive drives."""
    return Wait(kind="unattended", run_id=run_id, flow=flow, command="outlive worker MODULE")


def one_line(text: str, chars: int = TEXT_CHARS) -> str:
    """A recorded text within a sentence: short, and nothing in it that a terminal would obey."""
    line = " ".join(text.split())
    line = "".join(each if each.isprintable() else "?" for each in line)
    return line if len(line) <= chars else f"{line[:chars]}…"


def failure_text(fault: Fault) -> str:
    """The message of an error, and below it where it was raised, as Python prints it."""
    frames = (one_line(each) for each in fault.trace.split("\n") if each.strip())
    return f": {one_line(fault.message)}" + "".join(f"\n  {frame}" for frame in frames)
