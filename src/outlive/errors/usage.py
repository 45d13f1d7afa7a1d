"""Errors of the caller; each message says what to do instead."""

from __future__ import annotations

from outlive.errors.failures import UsageError


class NotInRun(UsageError):
    """An effect or wait was used outside a run; start a run, or use an effect's ``.plain(...)``."""

    def __init__(self, name: str, where: str = "from a flow") -> None:
        super().__init__(
            f"{name} was called outside a run; call it {where} started with outlive.run()"
            + _or_plain(name, "to run it without a record")
        )
        self.name, self.where = name, where


class InsideStep(UsageError):
    """An effect or wait was used inside a step's body; move it into the flow."""

    def __init__(self, name: str, step: str) -> None:
        super().__init__(
            f"{name} was called inside the body of step {step}; a step is a leaf: "
            f"call {name} from the flow" + _or_plain(name, "inside the body")
        )
        self.name, self.step = name, step


def _or_plain(name: str, when: str) -> str:
    """The remedy for functions of the user, which have ``.plain``; verbs of ours have not."""
    return "" if name.startswith("outlive.") else f", or use {name}.plain(...) {when}"


#: The way in which flow code hands work to a thread.
IN_THREADS = frozenset(
    {
        "loop.run_in_executor()",
        "loop.call_soon_threadsafe()",
        "loop.set_default_executor()",
        "anyio.to_thread.run_sync()",
    }
)
_USE_NO_THREAD = (
    ". Threads (asyncio.to_thread, anyio.to_thread, executors) are for step bodies: decorate the "
    "plain function with @outlive.step. If a framework does it, it runs a plain tool or callback "
    "in a thread: write that with `async def` (pydantic-ai, openai-agents), give it as "
    "`coroutine=` and call `ainvoke` (LangChain)"
)


class IoInFlow(UsageError):
    """Flow code did asyncio I/O outside a step; do it in a step."""

    def __init__(self, what: str) -> None:
        remedy = _USE_NO_THREAD if what in IN_THREADS else ""
        super().__init__(
            f"flow code called {what}; do this in a step: only step bodies touch the outside, "
            f"so that a replay never does it again{remedy}"
        )
        self.what = what


class NeverAwaited(UsageError):
    """A step or verb was called in a flow and never awaited, so it was not done; await it."""

    def __init__(self, step: str) -> None:
        super().__init__(
            f"{step} was called and never awaited, so it was not done: write `await {step}(...)`, "
            "or give it to asyncio.gather or a TaskGroup"
        )
        self.step = step


class AmbiguousCall(UsageError):
    """Two calls of one name were open in a place, and nothing tells them apart; give each an id."""

    def __init__(self, name: str, place: str, before: str) -> None:
        super().__init__(
            f"{name} was called in the place {place!r} while {before} had not ended; which of the "
            "two is the first depends on tasks, and may be another after a crash: give each an id, "
            f"as in outlive.do({name!r}, ..., id=call_id), or a place of its own, as in "
            "`with outlive.place(call_id):`"
        )
        self.name, self.place, self.before = name, place, before


class ValueRefused(UsageError):
    """A value would not come back as it was; the path says which part of it."""

    def __init__(self, reason: str, path: str = "$", where: str = "") -> None:
        super().__init__(f"{where}, at {path}: {reason}" if where else f"{path}: {reason}")
        self.reason, self.path, self.where = reason, path, where

    def by(self, where: str) -> ValueRefused:
        """The same, with who gave or returned the value."""
        return self if self.where else ValueRefused(self.reason, self.path, where)


class StreamFull(UsageError):
    """A stream takes no more: it has its limit, or the store is too far behind."""

    def __init__(self, stream: str, why: str) -> None:
        super().__init__(f"stream {stream!r} takes no more chunks: {why}")
        self.stream, self.why = stream, why


class DefinitionRefused(UsageError):
    """A decorator got an impossible argument; the message says which."""


class UnknownStore(UsageError):
    """No store supports this URL; use one of those named in the message."""


class FlowNotRegistered(UsageError):
    """This process does not know the run's flow; import or pass the module that defines it."""

    def __init__(self, flow: str, known: list[str]) -> None:
        have = ", ".join(sorted(known)) or "none"
        super().__init__(
            f"flow {flow!r} is not registered in this process (known: {have}); "
            "pass the flow itself, or name its module on the command line"
        )
        self.flow, self.known = flow, known


class RunNotFound(UsageError):
    """No run has this id; ``outlive runs`` lists those there are."""

    def __init__(self, run_id: str, checkpoints: str = "") -> None:
        remedy = "`outlive runs` lists all runs"
        if checkpoints:
            remedy = f"its checkpoints are called {checkpoints!r} by show, verify and erase"
        super().__init__(f"no run has the id {run_id!r}; {remedy}")
        self.run_id, self.checkpoints = run_id, checkpoints


class RunIdRefused(UsageError):
    """This can't be a run id; the message says why."""


class RunIdTaken(UsageError):
    """The id belongs to a run of another flow or other arguments; choose another id."""

    def __init__(self, run_id: str, why: str) -> None:
        super().__init__(f"run id {run_id!r} is taken: {why}; choose another id")
        self.run_id, self.why = run_id, why


class StepNotInDoubt(UsageError):
    """There is nothing to resolve at this step (yet); ``outlive show RUN`` lists the doubts.

    It is not in doubt, it was answered before, or its attempt may still be running.
    """


class RetryRefused(UsageError):
    """A run can't be tried again: it did not fail, or what it did is undone or not known.

    The message says why; start another run.
    """

    def __init__(self, run_id: str, why: str) -> None:
        super().__init__(f"run {run_id} can't be tried again: {why}")
        self.run_id, self.why = run_id, why


class ForkRefused(UsageError):
    """A run can't be forked at this place; the message says why, and where it can."""

    def __init__(self, run_id: str, why: str) -> None:
        super().__init__(f"run {run_id} can't be forked like this: {why}")
        self.run_id, self.why = run_id, why


class RunEnded(UsageError):
    """Nothing can be sent to a run that has ended; start another one."""

    def __init__(self, run_id: str, status: str) -> None:
        super().__init__(
            f"run {run_id} has ended ({status}): nothing can be sent to it any more; "
            "start another run, with another id"
        )
        self.run_id, self.status = run_id, status


class QuestionNotOpen(UsageError):
    """The run does not wait for this answer; ``handle.questions()`` lists what it asks.

    It was answered, closed, expired or never asked, or the run asks several things and none was
    named.
    """


class AnswerRefused(UsageError):
    """The answer is not what the question asks for; the question stays open, so answer again."""

    def __init__(self, question: str, why: str, wanted: str) -> None:
        super().__init__(
            f"question {question} refuses this answer: {why}; it stays open and wants {wanted}"
        )
        self.question, self.why, self.wanted = question, why, wanted


class ScheduleNotFound(UsageError):
    """There is no schedule of this name, or it was removed; ``outlive schedules`` lists them."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no schedule {name!r}; `outlive schedules` lists all schedules")
        self.name = name


class ExchangeRefused(UsageError):
    """An agent can't exchange messages like this; the message says why, and what to do."""

    def __init__(self, run_id: str, why: str) -> None:
        super().__init__(f"agent {run_id!r} can't exchange messages like this: {why}")
        self.run_id, self.why = run_id, why


class CutRefused(UsageError):
    """A cut of agents can't be taken, found or restored like this; the message says why."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"cut {name!r}: {why}")
        self.name, self.why = name, why


class AppClosed(UsageError):
    """The app was closed, or this process was forked from the one that opened it; open another."""
