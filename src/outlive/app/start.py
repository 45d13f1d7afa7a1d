"""Starting runs: by flow or by name, here or elsewhere, and finding the run of an id again."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import msgspec

from outlive.app.handle import Handle, Handles
from outlive.app.mail import check_by, retry_entry
from outlive.app.queues import Queues
from outlive.app.reader import StoreReader
from outlive.app.workers import Workers, Writer
from outlive.engine.arguments import Bound
from outlive.engine.definitions import Flow, RunOptions, check_name, nobody, not_a_flow, registry
from outlive.engine.notices import OnWait, check_on_wait
from outlive.engine.place import refuse_in_run
from outlive.engine.start import start_event
from outlive.errors import FlowNotRegistered, RetryRefused, RunError, RunIdTaken, WrongVersion
from outlive.journal.codec.codec import codec_for
from outlive.journal.codec.restore import is_stored, not_found, read_whole
from outlive.journal.headers import find_or_begin
from outlive.journal.reader import read_first
from outlive.journal.redaction import Hider
from outlive.model.defaults import FLOW_VERSION
from outlive.model.events import ChapterBegan, Event, Forked, RunStarted
from outlive.model.ids import check_run_id, digest
from outlive.portal import interrupted, run_blocking
from outlive.ports import Ports
from outlive.stores.seam import Store
from outlive.stores.transactions import Transactional, cannot_share
from outlive.stores.types import DEFAULT_QUEUE, LAST_CHAPTER, Header, Reading
from outlive.worker.chapters import RunFound, look_at
from outlive.worker.entries import start_entry
from outlive.worker.repertoire import each_once
from outlive.worker.worker import Worker

AnyFlow: TypeAlias = Flow[Any, Any]


@dataclass(frozen=True, slots=True)
class StartRequest:
    """A run that is to be started."""

    run_id: str
    event: RunStarted
    #: None: it is started by name, and this process does not have its code.
    flow: Flow[Any, Any] | None
    #: The caller chose the id, so the run may exist.
    is_named: bool = False

    def like(self, first: Event) -> StartRequest:
        """The same request with the arguments of the existing run."""
        there = start_of(first)
        event = msgspec.structs.replace(self.event, args=there.args, digest=there.digest)
        return StartRequest(self.run_id, event, self.flow)


Call: TypeAlias = tuple[Sequence[Any], Mapping[str, Any]]


class Starter:
    """Starts runs, and finds those that were started before."""

    def __init__(
        self, reader: StoreReader, writer: Writer, workers: Workers, handles: Handles
    ) -> None:
        self._reader, self._writer = reader, writer
        self._workers, self._handles = workers, handles
        self._queues = Queues(reader)
        #: The last run that was started by id existed, so the next one may, too: it is looked at
        #: before its start is written. The first one is often what a process drove when it died.
        self._reads_first = True

    def start(
        self, flow: AnyFlow, call: Call, run_id: str | None
    ) -> Coroutine[Any, Any, Handle[Any]]:
        """Start a run here, or continue the one of that id."""
        self._reader.check_open()
        return self._start(self._request(flow, call, run_id))

    async def ensure(self, flow: AnyFlow, call: Call, run_id: str) -> Handle[Any]:
        """Start a run unless there is one of that id; an app that does not drive submits it."""
        self._reader.check_open()
        request = self._request(flow, call, run_id)
        if self._workers.drives:
            return await self._start(request, compare=False)
        return await self.submit_request(request, compare=False)

    async def submit(
        self, flow: AnyFlow | str, call: Call, connection: Any, **options: Any
    ) -> Handle[Any]:
        """Start a run that a worker elsewhere drives."""
        self._reader.check_open()
        request = self._to_submit(flow, call, options)
        if connection is None:
            return await self.submit_request(request)
        await self._queues.check_units(request.event)
        await begin_within_async(self._reader.store, connection, request)
        return self._handles.of(request.run_id, request.flow)

    def submit_within(
        self, connection: Any, flow: AnyFlow | str, call: Call, options: Mapping[str, Any]
    ) -> Handle[Any]:
        """Start a run in the transaction of a connection, on the caller's thread."""
        self._reader.check_open()
        request = self._to_submit(flow, call, options)
        self._queues.check_units_here(request.event)
        begin_within(self._reader.store, connection, request)
        return self._handles.of(request.run_id, request.flow)

    async def submit_request(self, request: StartRequest, *, compare: bool = True) -> Handle[Any]:
        """Write the start of a run, or find that it is there."""
        await self._queues.check_units(request.event)
        if not await self.begin(request.run_id, request.event):
            await self._check_same(request, compare=compare)
        return self._handles.of(request.run_id, request.flow)

    async def begin(self, run_id: str, event: RunStarted) -> bool:
        """Write the start of a run that any worker may drive; False: there is one of that id."""
        is_new = await self._writer.commit(start_entry(run_id, event))
        if is_new:
            self._workers.wake(run_id)
        return is_new

    def run(self, flow: AnyFlow, call: Call, run_id: str | None, on_wait: OnWait) -> Any:
        """Start a run, or continue the one of that id, and block until it ends; its outcome."""
        refuse_in_run("outlive.run", "start a child run from the flow with outlive.call(...)")
        check_on_wait(on_wait)
        begun, is_over, under_way = run_id, False, list[tuple[str, bool]]()

        async def main() -> Any:
            nonlocal begun, is_over
            try:
                handle = await self.start(flow, call, run_id)
                begun = handle.id
                outcome = await handle.outcome(on_wait=on_wait)
                is_over = True
                return outcome
            except asyncio.CancelledError:
                under_way.extend(self._workers.under_way(begun or ""))
                raise
            finally:
                await self._workers.stop()

        try:
            return run_blocking(main)
        except KeyboardInterrupt:
            module = flow.fn.__module__
            raise interrupted(begun, module, under_way, is_over=is_over) from None
        except RunError as told:
            raise told.with_traceback(None) from told.__cause__  # the user's frames, not ours

    async def get(self, run_id: str, flow: AnyFlow | None) -> Handle[Any]:
        """The handle of an existing run."""
        await self._reader.read(check_run_id(run_id), 1 << 62)
        return self._handles.of(run_id, flow)

    async def resume(self, run_id: str, flows: Iterable[AnyFlow]) -> Handle[Any]:
        """Drive an existing run here."""
        self._reader.check_open()
        look = await self._look(check_run_id(run_id))
        if look is None:
            raise await self._reader.lane(not_found(self._reader.store, run_id))
        reading = look.reading
        start = start_of(read_first(reading))
        known = by_fitness(flows, start)
        if reading.header.ended_at is not None:
            return self._handles.of(run_id, known.get(start.flow))
        flow = fitting(known, run_id, start)
        worker = self._workers.of_loop()
        worker.learn(flow)
        if reading.header.wake_at is None or reading.header.reason:
            await self._handles.letterboxes.nudge(run_id, "resumed")
            look = None
        worker.want(run_id, look)
        return self._handles.of(run_id, flow, worker)

    async def retry(self, run_id: str, by: str) -> Handle[Any]:
        """Make a run due again that failed or is quarantined."""
        reading = await self._reader.read(check_run_id(run_id), LAST_CHAPTER)
        if reading.header.status == "quarantined":
            await self._handles.letterboxes.nudge(run_id, "retried")
        else:
            now, events = self._reader.ports.clock.now_ms(), await self._reader.events(reading)
            entry = retry_entry(reading, now=now, by=check_by(by), events=events)
            if not await self._writer.commit(entry):
                raise RetryRefused(run_id, "somebody else was faster")
        return self._handles.of(run_id)

    def _request(self, flow: AnyFlow, call: Call, run_id: str | None) -> StartRequest:
        reader = self._reader
        request = by_flow(flow, call, run_id, reader.ports)
        hides = reader.hider.is_on or reader.hider.names
        return hidden(request, reader.hider) if hides else request

    def _to_submit(
        self, flow: AnyFlow | str, call: Call, options: Mapping[str, Any]
    ) -> StartRequest:
        return hidden(to_submit(flow, call, options, self._reader.ports), self._reader.hider)

    async def _start(self, request: StartRequest, *, compare: bool = True) -> Handle[Any]:
        flow, run_id = request.flow, request.run_id
        assert flow is not None, "a run that is driven here has its code here"
        worker = self._workers.of_loop()
        worker.learn(flow)
        is_read = request.is_named and self._reads_first
        there = await self._look(run_id) if is_read else None
        is_new = False
        if there is None and request.event.queue == DEFAULT_QUEUE:
            is_new = await worker.start_run(run_id, request.event)
        elif there is None:
            is_new = await self._begin_queued(worker, request)
        if request.is_named:
            self._reads_first = not is_new
        if not is_new:
            await self._go_on(worker, request, there, compare=compare)
        return self._handles.of(run_id, flow, worker)

    async def _go_on(
        self, worker: Worker, request: StartRequest, there: RunFound | None, *, compare: bool
    ) -> None:
        """Drive the existing run, if it is the requested one and not over."""
        if there is None:
            reader, read = self._reader, partial(self._look, request.run_id)
            entry = start_entry(request.run_id, request.event)
            there = await find_or_begin(reader.store, reader.lane, entry, read)
        found = None if there is None else there.reading
        header = check_found(request, found, compare=compare)
        is_nudged = await self._nudge(request.run_id, header)
        if header.ended_at is None:
            worker.want(request.run_id, None if is_nudged else there)

    async def _begin_queued(self, worker: Worker, request: StartRequest) -> bool:
        """Whether the run is new. It waits until its queue lets it be claimed."""
        await self._queues.check_units(request.event)
        is_new = await self._writer.commit(start_entry(request.run_id, request.event))
        if is_new:
            worker.want(request.run_id)
        return is_new

    async def _look(self, run_id: str) -> RunFound | None:
        reader = self._reader
        return await reader.lane(look_at(reader.store, run_id, reader.ports.clock.now_ms()))

    async def _peek(self, run_id: str) -> Reading | None:
        return await self._reader.lane(
            read_whole(self._reader.store, run_id, LAST_CHAPTER, limit=1)
        )

    async def _check_same(self, request: StartRequest, *, compare: bool) -> None:
        """Check that the existing run is the requested one."""
        run_id, reader = request.run_id, self._reader
        entry, read = start_entry(run_id, request.event), partial(self._peek, run_id)
        found = await find_or_begin(reader.store, reader.lane, entry, read)
        await self._nudge(run_id, check_found(request, found, compare=compare))

    async def _nudge(self, run_id: str, header: Header) -> bool:
        """Have a run looked at that only waits for that; whether it was one."""
        is_put_off = header.status == "quarantined" or (
            bool(header.reason) and header.ended_at is None
        )
        if is_put_off:
            await self._handles.letterboxes.nudge(run_id, "started again")
        return is_put_off


def _checked(flow: Any) -> Flow[..., Any]:
    if not isinstance(flow, Flow):
        raise not_a_flow(flow)
    return flow


def by_flow(flow: Flow[..., Any], call: Call, run_id: str | None, ports: Ports) -> StartRequest:
    """The request to start this flow."""
    if not isinstance(flow, Flow):
        raise not_a_flow(flow)
    if run_id is None:
        return _request(flow, flow.bind(*call[0], **call[1]), None, ports)
    (args, kwargs), said = _parted(flow, call, {"id": run_id})
    return _request(flow, flow.bind(*args, **kwargs), said["id"], ports)


def _parted(
    flow: Flow[Any, Any], call: Call, options: Mapping[str, Any]
) -> tuple[Call, dict[str, Any]]:
    """Arguments of the flow and options of the run; a name that the flow takes is an argument."""
    given = {name: value for name, value in options.items() if value is not None}
    taken = {name: given[name] for name in given if flow.takes(name)}
    rest = {name: None if name in taken else value for name, value in options.items()}
    return (call[0], {**call[1], **taken}), rest


def by_name(name: str, call: Call, options: RunOptions, ports: Ports) -> StartRequest:
    """The request to start a flow by name; ``version`` among the arguments is the flow's."""
    args, kwargs = call[0], dict(call[1])
    version = kwargs.pop("version", FLOW_VERSION)
    stub = Flow(name=check_name(name), fn=nobody, version=version, preset=options)
    request = _request(stub, {}, None, ports)
    return StartRequest(request.run_id, _as_given(request.event, args, kwargs), None)


def to_submit(
    flow: Flow[..., Any] | str, call: Call, options: Mapping[str, Any], ports: Ports
) -> StartRequest:
    """The request to start a flow or a name, with options of the run."""
    if isinstance(flow, str):
        given = {name: value for name, value in options.items() if value is not None}
        return by_name(flow, call, RunOptions(**given), ports)
    flow = _checked(flow)
    call, rest = _parted(flow, call, options)
    run_id = rest.pop("id")
    return by_flow(flow.options(**rest), call, run_id, ports)


def hidden(request: StartRequest, hider: Hider) -> StartRequest:
    """The request as it may be recorded: redacted.

    Raises:
        ValueRefused: the name of an argument is redacted.
    """
    hider.check_run(request.event.flow, request.event.args)
    return replace(request, event=hider.start(request.event))


def _request(flow: Flow[Any, Any], bound: Bound, run_id: str | None, ports: Ports) -> StartRequest:
    given = flow.preset.id if run_id is None else run_id
    name = check_run_id(ports.entropy(8).hex() if given is None else given)
    args = flow.args_codec.write(bound)
    event = start_event(flow, name, args, seed=ports.entropy(16), now=ports.clock.now_ms())
    return StartRequest(name, event, flow, is_named=given is not None)


def _as_given(event: RunStarted, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RunStarted:
    """Unbound arguments: the worker that has the flow binds them."""
    codec = codec_for([type(value) for value in (*args, *kwargs.values())], registry)
    encoded = codec.write([list(args), dict(kwargs)])
    return msgspec.structs.replace(event, args=encoded, digest=digest(encoded))


def _transactions(store: Store) -> Transactional:
    if store.transactions is None:
        raise cannot_share("connection=")
    return store.transactions


def begin_within(store: Store, connection: Any, request: StartRequest) -> None:
    """Start a run in the user's own transaction, or find that it exists."""
    entry = start_entry(request.run_id, request.event)
    is_in, there = _transactions(store).enlist(connection, entry)
    if not is_in:
        check_found(request, there, compare=True)


async def begin_within_async(store: Store, connection: Any, request: StartRequest) -> None:
    """``begin_within`` for a connection that may have to be awaited."""
    entry = start_entry(request.run_id, request.event)
    is_in, there = await _transactions(store).enlist_async(connection, entry)
    if not is_in:
        check_found(request, there, compare=True)


def check_found(request: StartRequest, found: Reading | None, *, compare: bool) -> Header:
    """Check that the run found under this id is the requested one; its header."""
    if found is None:
        raise RunIdTaken(request.run_id, "it belonged to a run that was deleted not long ago")
    # A run found within a transaction comes without nodes: then only the digests are compared.
    first = read_first(found, restored=bool(found.nodes))
    check_same_run(request if compare else request.like(first), first)
    return found.header


def check_same_run(request: StartRequest, first: Event) -> None:
    """Check that the run that begins with this event is the requested one.

    Raises:
        RunIdTaken: it is another run.
        WrongVersion: this code of the flow can't drive it.
    """
    event, there = request.event, start_of(first)
    if there.flow != event.flow:
        raise RunIdTaken(request.run_id, f"it is a run of flow {there.flow!r}, not {event.flow!r}")
    if request.flow is not None:
        check_version(request.flow, request.run_id, there)
    if there.digest != event.digest and not _same_arguments(request.flow, event.args, there.args):
        raise RunIdTaken(request.run_id, f"that run of flow {there.flow!r} has other arguments")


def start_of(first: Event) -> RunStarted:
    """How the run was started, by the first event of its last chapter."""
    assert isinstance(first, (RunStarted, ChapterBegan, Forked)), "no run begins otherwise"
    return first if isinstance(first, RunStarted) else first.start


def check_version(flow: Flow[Any, Any], run_id: str, there: RunStarted) -> None:
    """Check that this code of the flow can drive the run."""
    if there.version not in flow.versions:
        accepted = ", ".join(sorted(flow.versions))
        raise WrongVersion(
            f"run {run_id} was started with version {there.version!r} of flow {there.flow!r}; "
            f"this code drives {accepted}: add accepts=({there.version!r},) if it can drive it"
        )


def by_fitness(flows: Iterable[Flow[Any, Any]], start: RunStarted) -> dict[str, Flow[Any, Any]]:
    """Flows by name; of several with one name, the one that fits the run's version best."""

    def fitness(flow: Flow[Any, Any]) -> tuple[bool, bool]:
        return start.version in flow.versions, start.version == flow.version

    return {flow.name: flow for flow in sorted(each_once(flows), key=fitness)}


def fitting(known: Mapping[str, Flow[Any, Any]], run_id: str, start: RunStarted) -> Flow[Any, Any]:
    """The flow that can drive the run."""
    if start.flow not in known:
        raise FlowNotRegistered(start.flow, list(known))
    check_version(known[start.flow], run_id, start)
    return known[start.flow]


def _same_arguments(flow: Flow[Any, Any] | None, asked: bytes, there: bytes) -> bool:
    """Whether both mean the same call, bound or not."""
    codec = codec_for([], registry) if flow is None else flow.args_codec
    if codec.same(asked, there):
        return True
    if is_stored(there):
        return False  # its parts are in the store
    if flow is not None:
        return codec.same(_bound(flow, asked), _bound(flow, there))
    given, recorded = msgspec.msgpack.decode(asked), msgspec.msgpack.decode(there)
    if isinstance(recorded, list):
        return False
    args, kwargs = given
    # Without the flow its default arguments are unknown: compare those that were given.
    is_same = list(recorded.values())[: len(args)] == args
    return is_same and all(recorded.get(name, ...) == value for name, value in kwargs.items())


def _bound(flow: Flow[Any, Any], raw: bytes) -> bytes:
    recorded = flow.args_codec.decode(raw)
    if not isinstance(recorded, list):
        return raw
    try:
        return flow.args_codec.write(flow.bind(*recorded[0], **recorded[1]))
    except TypeError:
        return raw  # it does not fit the flow; the worker that drives it reports that
