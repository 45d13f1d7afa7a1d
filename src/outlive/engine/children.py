"""Other runs: started as effects of the engine, awaited or on their own.

The intent names the child's id, a function of run and step unless the flow gives one, and is
durable before the child is started: a repeat is a no-op. An awaited child posts its outcome to the
parent before it counts as ended; the parent may have left memory meanwhile. Children that are
awaited end with their parent.
"""

from __future__ import annotations

import asyncio
from functools import partial
from hashlib import blake2b
from typing import Any

import msgspec

from outlive.engine.context import Env, RunContext
from outlive.engine.definitions import Flow
from outlive.engine.faults import exception_of
from outlive.engine.peers import insist
from outlive.engine.place import RunStopped
from outlive.engine.replay import Comparing
from outlive.engine.start import start_event
from outlive.errors import RunCancelled, RunFailed, RunIdTaken, UsageError, ValueRefused
from outlive.journal.codec.parts import whole
from outlive.journal.log import RunLog
from outlive.model.events import (
    ChildEnded,
    ChildIntended,
    ChildSpawned,
    Fault,
    MailRead,
    ParentTold,
    RunStarted,
)
from outlive.model.ids import ID_KEPT, check_run_id, derived_bytes, digest
from outlive.model.mail import Cancel, ChildNews
from outlive.model.run import Run

_NEVER_BEGUN = Fault("CancelledError", "cancelled before it began")


class _Child:
    __slots__ = ("event", "flow", "future", "is_fresh", "is_orphan")

    def __init__(
        self, flow: Flow[Any, Any], event: ChildIntended, future: asyncio.Future[Any]
    ) -> None:
        self.flow, self.event, self.future = flow, event, future
        #: Nobody waits for it any more.
        self.is_orphan = False
        #: Its intent is ours, so nobody can have started it before us.
        self.is_fresh = False


class Children:
    """The children of one run."""

    def __init__(self, context: RunContext, run: Run, comparing: Comparing) -> None:
        self._context, self._comparing = context, comparing
        self._tries = run.tries
        #: Steps whose intent the replay has gone through, and our own.
        self._intended: set[str] = set()
        self._started = set(run.children_started)
        #: By step: begun and not ended.
        self._open: dict[str, _Child] = {}
        #: By the child's id, the steps that wait for it.
        self._steps: dict[str, list[str]] = {}
        #: Being started or told to stop: till then the run neither leaves memory nor ends.
        self.busy = 0
        #: Mail was kept aside, and nobody knows of what kind it was.
        self.is_news_lost = False

    def open_ids(self) -> list[str]:
        """Children that the flow waits for."""
        return [step for step, child in self._open.items() if not child.is_orphan]

    # what flow code calls

    async def run(self, step: str, flow: Flow[Any, Any], args: bytes, *, awaited: bool) -> Any:
        """Start a child and wait for its outcome, or only for its start.

        A flow that is known by name only begins a family of its own: no child, though started so.
        """
        child_id = check_run_id(flow.preset.id or _derived_id(self._context.run_id, step))
        event = ChildIntended(0, step, child_id, flow.name, args, digest(args), awaited)
        child = _Child(flow, event, self._context.loop.create_future())
        self._open[step] = child
        self._steps.setdefault(child_id, []).append(step)
        if self._context.is_live:
            self._begin(child)
        try:
            end = await child.future
        except asyncio.CancelledError:
            self._abandon(child)
            raise
        return child_id if isinstance(end, ChildSpawned) else self._outcome(child, end)

    def _outcome(self, child: _Child, end: ChildEnded) -> Any:
        codec = child.flow.value_codec
        if end.error is None:
            try:
                return codec.decode(end.value)
            except ValueRefused as refused:
                self._comparing.refuse(refused)
                raise RunStopped from None
        if end.status == "refused":
            if end.error.type_name == "UsageError":
                raise UsageError(end.error.message)
            raise RunIdTaken(end.child_id, end.error.message)
        if end.status == "cancelled":
            raise RunCancelled(end.child_id)
        failed = RunFailed(end.child_id, end.error.type_name, end.error.message)
        raise failed from exception_of(end.error, {}, codec)

    # giving up

    def cut(self) -> None:
        """The flow is stopped: children that it waited for are told to stop, too."""
        for child in list(self._open.values()):
            self._abandon(child)

    def _abandon(self, child: _Child) -> None:
        if self._context.stopped or child.event.step not in self._open:
            return
        child.is_orphan = True
        if self._context.is_live:
            self._let_go(child)

    def _let_go(self, child: _Child) -> None:
        """Nobody waits for it: one that was never begun is forgotten, one that runs shall stop."""
        step = child.event.step
        if step not in self._intended:
            self._forget(child)
        elif step in self._started and child.event.is_awaited:
            self.busy += 1
            # Only when what led to it is durable: it can't be taken back.
            self._context.when_durable(partial(self._stop, child))
        # Otherwise it is being started just now; whoever does that looks here again.

    def _stop(self, child: _Child) -> None:
        if not self._context.stopped:
            self._context.env.host.create_task(self._tell_to_stop(child))

    async def _tell_to_stop(self, child: _Child) -> None:
        context = self._context
        mail_id = f"cancel/{context.run_id}/{child.event.step}/{self._tries}"
        letter = Cancel(f"run {context.run_id}")
        post = partial(context.env.kin.post, child.event.child_id, mail_id, letter)
        await insist(post, lambda: context.stopped)
        self.busy -= 1
        context.attend()

    def _forget(self, child: _Child) -> None:
        step, child_id = child.event.step, child.event.child_id
        self._open.pop(step, None)
        self._intended.discard(step)
        self._started.discard(step)
        waiting = self._steps.get(child_id, [])
        if step in waiting:
            waiting.remove(step)
        if not waiting:
            self._steps.pop(child_id, None)

    # beginning

    def go_live(self) -> None:
        """The replay is over: begin what the last driver did not, stop what nobody wants."""
        for child in list(self._open.values()):
            step = child.event.step
            if step in self._started:
                self._context.env.kin.want(child.flow, child.event.child_id)
            elif not child.is_orphan or step in self._intended:
                # Even if nobody wants it: a driver before us may be about to start it.
                self._begin(child)
            if child.is_orphan:
                self._let_go(child)
        if self.is_news_lost:
            self.ask_again()

    def ask_again(self) -> None:
        """Mail can't be read that may have been a child's news: their journals say it, too."""
        self.is_news_lost = True
        for step, child in self._open.items() if self._context.is_live else ():
            if child.event.is_awaited and step in self._started:
                self.busy += 1
                self._context.env.host.create_task(self._ask(child))

    async def _ask(self, child: _Child) -> None:
        context, step = self._context, child.event.step
        look = partial(context.env.kin.news_of, child.event.child_id)
        news = await insist(look, lambda: context.stopped)
        self.busy -= 1
        if isinstance(news, ChildNews) and not context.stopped and self._open.get(step) is child:
            context.record(_ended(context.at(), step, news))
        context.attend()

    def _begin(self, child: _Child) -> None:
        context = self._context
        self.busy += 1
        if child.event.step not in self._intended:
            self._intended.add(child.event.step)
            # What came after a failure is not replayed: before the retry it may have run.
            child.is_fresh = not self._tries
            context.note(msgspec.structs.replace(child.event, at=context.at()))
        context.when_durable(partial(self._start, child))

    def _start(self, child: _Child) -> None:
        context = self._context
        if context.stopped:
            return
        if child.is_fresh and child.is_orphan:
            self.busy -= 1
            news = ChildNews(child.event.child_id, "cancelled", b"", _NEVER_BEGUN)
            context.record(_ended(context.at(), child.event.step, news))
        else:
            context.env.host.create_task(self._start_or_break(child))

    async def _start_or_break(self, child: _Child) -> None:
        try:
            await self._start_run(child)
        except Exception as bug:
            self._context.broke(bug)

    async def _start_run(self, child: _Child) -> None:
        context = self._context
        start = partial(
            context.env.kin.start_child, child.event.child_id, self._first_event(child), child.flow
        )
        answer = await insist(start, lambda: context.stopped)
        if answer is None or context.stopped:
            return
        self.busy -= 1
        step, child_id = child.event.step, child.event.child_id
        if step in self._open:
            at = context.at()
            match answer:
                case Fault():
                    context.record(ChildEnded(at, step, child_id, "refused", b"", answer))
                case ChildNews():
                    context.record(_ended(at, step, answer))
                case "started":
                    context.record(ChildSpawned(at, step, child_id))
        context.attend()

    def _first_event(self, child: _Child) -> RunStarted:
        context, parent = self._context, self._context.start_event
        event = start_event(
            child.flow,
            child.event.child_id,
            child.event.args,
            seed=derived_bytes(parent.seed, child.event.step),
            now=context.env.ports.clock.now_ms(),
        )
        event = context.hider.start(event)
        if child.flow.is_name_only:
            return event
        return msgspec.structs.replace(
            event,
            family=parent.family,
            parent=context.run_id,
            is_awaited=child.event.is_awaited,
        )

    # deliveries

    def compare(self, event: ChildIntended) -> None:
        """An intent in the journal: the code must ask for the same child."""
        self._intended.add(event.step)
        child = self._open.get(event.step)
        if child is None:
            self._comparing.differs(event)
            return
        if child.event.child_id != event.child_id and self._comparing.is_inherited(event):
            self._inherit(child, event.child_id)
        asked = child.event
        if (asked.child_id, asked.flow) != (event.child_id, event.flow):
            wanted = f"run {asked.child_id} of flow {asked.flow} at {asked.step}"
            self._comparing.differs(event, wanted)
        elif event.digest != asked.digest and not child.flow.args_codec.same(
            event.args, asked.args
        ):
            self._comparing.differs(event, f"{asked.step} with other arguments")

    def _inherit(self, child: _Child, child_id: str) -> None:
        """In what a fork shares, a child is named after the other run, which started it."""
        if child.flow.preset.id is None:
            self._steps[child.event.child_id].remove(child.event.step)
            child.event = msgspec.structs.replace(child.event, child_id=child_id)
            self._steps.setdefault(child_id, []).append(child.event.step)

    def deliver(self, event: ChildSpawned | ChildEnded) -> None:
        """Wake who waits for it."""
        child = self._open.get(event.step)
        if child is None:
            return
        if child.event.is_awaited and isinstance(event, ChildSpawned):
            self._started.add(event.step)
            if child.is_orphan and self._context.is_live:
                self._let_go(child)
            return
        self._forget(child)
        if not child.future.done():
            child.future.set_result(event)

    def take_news(self, news: ChildNews, mail_id: str) -> None:
        """A child ended."""
        context = self._context
        steps = [
            step for step in self._steps.get(news.child_id, ()) if self._open[step].event.is_awaited
        ]
        if not steps:
            context.note(MailRead(context.at(), mail_id, "nobody waits for this child"), mail_id)
        for step in steps:
            # The mail counts as read with the last: what is cut off before it is told again.
            context.record(_ended(context.at(), step, news), mail_id if step == steps[-1] else None)


def _ended(at: int, step: str, news: ChildNews) -> ChildEnded:
    return ChildEnded(at, step, news.child_id, news.status, news.value, news.error)


def _derived_id(run_id: str, step: str) -> str:
    tail = blake2b(f"{run_id}\0{step}".encode(), digest_size=8).hexdigest()
    return f"{run_id[:ID_KEPT]}.{tail}"


async def tell_parent(env: Env, log: RunLog, run: Run) -> bool:
    """Post the outcome to the parent and write that down; safe to repeat. False: it is lost."""
    parent = run.start.parent
    assert parent is not None, "an awaited run has a parent"
    news = ChildNews(log.run_id, run.status, whole(run.value or b""), run.error)
    # By its end: a child that is tried again has news again.
    post = partial(env.kin.post, parent, f"child/{log.run_id}/{run.end_seq}", news)
    if await insist(post, lambda: log.failure is not None) is None:
        return False
    log.append(ParentTold(max(run.at, env.ports.clock.now_ms() - run.start.started_at)))
    return True
