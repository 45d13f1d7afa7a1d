"""How a run begins, for those who ask for it: by its flow or by name; and when it is the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import msgspec

from outlive.engine.arguments import Bound
from outlive.engine.definitions import Flow, RunOptions, check_name, nobody, not_a_flow, registry
from outlive.engine.start import start_event
from outlive.errors import FlowNotRegistered, RunIdTaken, WrongVersion
from outlive.journal.codec.codec import codec_for
from outlive.journal.codec.restore import is_stored
from outlive.journal.reader import read_first
from outlive.journal.redaction import Hider
from outlive.model.defaults import FLOW_VERSION
from outlive.model.events import ChapterBegan, Event, Forked, RunStarted
from outlive.model.ids import check_run_id, digest
from outlive.ports import Ports
from outlive.stores.seam import Store
from outlive.stores.transactions import enlisting
from outlive.stores.types import Header, Reading
from outlive.worker.entries import start_entry
from outlive.worker.repertoire import each_once


@dataclass(frozen=True, slots=True)
class Asked:
    """A run that somebody asks for."""

    run_id: str
    event: RunStarted
    #: None: it was asked for by name, and this process does not have its code.
    flow: Flow[Any, Any] | None
    #: Whoever asks chose the id, so the run may be there already.
    is_named: bool = False

    def like(self, first: Event) -> Asked:
        """The same, with the arguments that the run has."""
        there = start_of(first)
        event = msgspec.structs.replace(self.event, args=there.args, digest=there.digest)
        return Asked(self.run_id, event, self.flow)


Call: TypeAlias = tuple[Sequence[Any], Mapping[str, Any]]


def _checked(flow: Any) -> Flow[..., Any]:
    if not isinstance(flow, Flow):
        raise not_a_flow(flow)
    return flow


def by_flow(flow: Flow[..., Any], call: Call, run_id: str | None, ports: Ports) -> Asked:
    """What is asked for with the flow at hand."""
    flow = _checked(flow)
    (args, kwargs), said = _parted(flow, call, {"id": run_id})
    return _asked(flow, flow.bind(*args, **kwargs), said["id"], ports)


def _parted(
    flow: Flow[Any, Any], call: Call, options: Mapping[str, Any]
) -> tuple[Call, dict[str, Any]]:
    """What the flow is called with, and what is said of the run, where names are in both."""
    given = {name: value for name, value in options.items() if value is not None}
    taken = {name: given[name] for name in given if flow.takes(name)}
    rest = {name: None if name in taken else value for name, value in options.items()}
    return (call[0], {**call[1], **taken}), rest


def by_name(name: str, call: Call, options: RunOptions, ports: Ports) -> Asked:
    """What is asked for by name: ``version`` among the arguments is the flow's, by default "1"."""
    args, kwargs = call[0], dict(call[1])
    version = kwargs.pop("version", FLOW_VERSION)
    stub = Flow(name=check_name(name), fn=nobody, version=version, preset=options)
    asked = _asked(stub, {}, None, ports)
    return Asked(asked.run_id, _as_given(asked.event, args, kwargs), None)


def to_submit(
    flow: Flow[..., Any] | str, call: Call, options: Mapping[str, Any], ports: Ports
) -> Asked:
    """What is asked for by its flow or by name, with options for the run."""
    if isinstance(flow, str):
        given = {name: value for name, value in options.items() if value is not None}
        return by_name(flow, call, RunOptions(**given), ports)
    flow = _checked(flow)
    call, rest = _parted(flow, call, options)
    run_id = rest.pop("id")
    return by_flow(flow.options(**rest), call, run_id, ports)


def hidden(asked: Asked, hider: Hider) -> Asked:
    """The same, as it may be recorded.

    Raises:
        ValueRefused: one of its arguments has a name that is redacted.
    """
    hider.check_run(asked.event.flow, asked.event.args)
    return replace(asked, event=hider.start(asked.event))


def _asked(flow: Flow[Any, Any], bound: Bound, run_id: str | None, ports: Ports) -> Asked:
    given = flow.preset.id if run_id is None else run_id
    name = check_run_id(ports.entropy(8).hex() if given is None else given)
    args = flow.args_codec.write(bound)
    event = start_event(flow, name, args, seed=ports.entropy(16), now=ports.clock.now_ms())
    return Asked(name, event, flow, is_named=given is not None)


def _as_given(event: RunStarted, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RunStarted:
    """Arguments as they were given: whoever has the flow binds them."""
    codec = codec_for([type(value) for value in (*args, *kwargs.values())], registry)
    encoded = codec.write([list(args), dict(kwargs)])
    return msgspec.structs.replace(event, args=encoded, digest=digest(encoded))


def begin_within(store: Store, connection: Any, asked: Asked) -> None:
    """Begin a run in the user's own transaction, or find that it is there already."""
    entry = start_entry(asked.run_id, asked.event)
    is_in, there = enlisting(store).enlist(connection, entry)
    if not is_in:
        check_found(asked, there, compare=True)


async def begin_within_async(store: Store, connection: Any, asked: Asked) -> None:
    """The same over a connection that may have to be awaited."""
    entry = start_entry(asked.run_id, asked.event)
    is_in, there = await enlisting(store).enlist_async(connection, entry)
    if not is_in:
        check_found(asked, there, compare=True)


def check_found(asked: Asked, found: Reading | None, *, compare: bool) -> Header:
    """The run that was found, which nobody could create anew, is the one that was asked for."""
    if found is None:
        raise RunIdTaken(asked.run_id, "it belonged to a run that was deleted not long ago")
    # Whoever found it in a transaction of its own has no nodes: the digests decide alone.
    first = read_first(found, restored=bool(found.nodes))
    check_same_run(asked if compare else asked.like(first), first)
    return found.header


def check_same_run(asked: Asked, first: Event) -> None:
    """The run that has this id, which begins so, is the one that was asked for.

    Raises:
        RunIdTaken: it is another run.
        WrongVersion: the flow's code can't drive it.
    """
    event, there = asked.event, start_of(first)
    if there.flow != event.flow:
        raise RunIdTaken(asked.run_id, f"it is a run of flow {there.flow!r}, not {event.flow!r}")
    if asked.flow is not None:
        check_version(asked.flow, asked.run_id, there)
    if there.digest != event.digest and not _same_arguments(asked.flow, event.args, there.args):
        raise RunIdTaken(asked.run_id, f"that run of flow {there.flow!r} has other arguments")


def start_of(first: Event) -> RunStarted:
    """How the run was started, as its last chapter has it."""
    assert isinstance(first, (RunStarted, ChapterBegan, Forked)), "no run begins otherwise"
    return first if isinstance(first, RunStarted) else first.start


def check_version(flow: Flow[Any, Any], run_id: str, there: RunStarted) -> None:
    """The flow's code can drive the run."""
    if there.version not in flow.versions:
        accepted = ", ".join(sorted(flow.versions))
        raise WrongVersion(
            f"run {run_id} was started with version {there.version!r} of flow {there.flow!r}; "
            f"this code drives {accepted}: add accepts=({there.version!r},) if it can drive it"
        )


def by_fitness(flows: Iterable[Flow[Any, Any]], start: RunStarted) -> dict[str, Flow[Any, Any]]:
    """Flows by name; of several the one that fits the run's version best."""

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
    """Whether both mean the same call, however each was asked for."""
    codec = codec_for([], registry) if flow is None else flow.args_codec
    if codec.same(asked, there):
        return True
    if is_stored(there):
        return False  # nobody could put it together here
    if flow is not None:
        return codec.same(_bound(flow, asked), _bound(flow, there))
    given, recorded = msgspec.msgpack.decode(asked), msgspec.msgpack.decode(there)
    if isinstance(recorded, list):
        return False
    args, kwargs = given
    # Without the flow nobody knows its defaults: what was given must be there.
    is_same = list(recorded.values())[: len(args)] == args
    return is_same and all(recorded.get(name, ...) == value for name, value in kwargs.items())


def _bound(flow: Flow[Any, Any], raw: bytes) -> bytes:
    recorded = flow.args_codec.decode(raw)
    if not isinstance(recorded, list):
        return raw
    try:
        return flow.args_codec.write(flow.bind(*recorded[0], **recorded[1]))
    except TypeError:
        return raw  # it can't be called so; whoever drives it says that
