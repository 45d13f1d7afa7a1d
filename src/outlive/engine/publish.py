"""Progress that others see while a run is under way: published values, and tags."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from outlive.engine.inputs import encode_own
from outlive.engine.place import Body, awaited, branch_for, on_loop, place
from outlive.errors import NotInRun, UsageError, ValueRefused
from outlive.model.defaults import PUBLISHED_BYTES_MAX, TAG_CHARS_MAX
from outlive.model.ids import is_text
from outlive.model.schedules import INSTANT_TAG, NAME_TAG

#: Of a published name.
NAME_CHARS_MAX = 64


@awaited
async def publish(**values: Any) -> None:
    """Show these values to those who watch the run: ``publish(progress=0.4, stage="searching")``.

    In a flow or in a step. Of each name the newest value counts. Watchers see it when it is
    durable: with the next commit of the run, or within 200 ms. A replay writes nothing.

    Raises:
        ValueRefused: a value can't be recorded, or takes more than 1,024 bytes.
    """
    publish_plainly(**values)


def publish_plainly(**values: Any) -> None:
    """``publish`` without waiting: for plain flows and plain steps."""
    encoded = {name: _encoded(name, value) for name, value in values.items()}
    _tell("outlive.publish", lambda run: run.publish(encoded))


@awaited
async def tag(**tags: str) -> None:
    """Change tags of this run: ``tag(team="a")``. ``find(tag={"team": "a"})`` finds it then.

    In a flow or in a step. A replay writes nothing.
    """
    tag_plainly(**tags)


def tag_plainly(**tags: str) -> None:
    """``tag`` without waiting: for plain flows and plain steps."""
    _check_tags(tags)
    _tell("outlive.tag", lambda run: run.tag(tags))


def _encoded(name: str, value: object) -> bytes:
    if not is_text(name) or not 0 < len(name) <= NAME_CHARS_MAX:
        raise UsageError(f"publish: a name has 1 to {NAME_CHARS_MAX} characters, not {name!r}")
    try:
        encoded = encode_own(value)
    except ValueRefused as refused:
        raise refused.by(f"outlive.publish({name}=...) was given") from None
    if len(encoded) > PUBLISHED_BYTES_MAX:
        raise ValueRefused(
            f"it takes {len(encoded)} bytes, and a published value has at most "
            f"{PUBLISHED_BYTES_MAX}; return large values from a step, or stream them",
            where=f"outlive.publish({name}=...)",
        )
    return encoded


def _check_tags(tags: Mapping[str, object]) -> None:
    for name, value in tags.items():
        if not (is_text(name) and is_text(value)):
            raise UsageError(f"tag: tags are texts by name, not {name!r}: {value!r}")
        if max(len(name), len(str(value))) > TAG_CHARS_MAX:
            raise UsageError(f"tag: {name!r} has more than {TAG_CHARS_MAX} characters")
        if name in (NAME_TAG, INSTANT_TAG):
            raise UsageError(f"tag: {name!r} is the tag of a schedule; choose another name")


def _tell(name: str, work: Callable[[Any], None]) -> None:
    """Let the run that this code belongs to do something, where it is changed."""
    here = place.get()
    if type(here) is not Body:
        drive = branch_for(name).drive
        on_loop(lambda: work(drive))
    elif here.context is None:
        raise NotInRun(name, "in a flow or in the body of a step")
    else:
        call_on_host(here.context, lambda: work(here.context))


def call_on_host(context: Any, work: Callable[[], None]) -> None:
    """Call this on the loop of a run's host: now, if this is its thread."""
    if threading.get_ident() == context.env.occupation.thread:
        work()
    else:
        context.env.host.call_threadsafe(work)
