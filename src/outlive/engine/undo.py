"""Undo: what an effect did is taken back by an effect of its own, the last one first."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from outlive.engine.arguments import call_by_name, is_async
from outlive.engine.definitions import (
    EFFECT_TIMEOUT_SECONDS_MIN,
    Definition,
    Effect,
    EffectRules,
    Step,
)
from outlive.engine.ops import Op
from outlive.engine.redaction import own_copy, without_marks
from outlive.errors import RunError
from outlive.model.defaults import EFFECT_TIMEOUT_SECONDS
from outlive.model.events import (
    EffectDone,
    EffectRaised,
    Undoable,
)
from outlive.model.ids import digest
from outlive.model.retry import ONCE, Retry


class Undoables:
    """Effects that can be undone, by name: a chapter's successor has only their names."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Definition]] = {}

    def add(self, definition: Definition) -> None:
        """An effect was defined; a later one of the same place replaces it."""
        self._known.setdefault(definition.name, {})[place_of(definition)] = definition

    def find(self, name: str, where: str) -> Definition:
        """The effect of that name: the one at that place, or the only one.

        Raises:
            RunError: there is none in this process, or it can't be told which.
        """
        known = self._known.get(name, {})
        found = known.get(where) or (next(iter(known.values())) if len(known) == 1 else None)
        if found is None:
            has = "several, " + ", ".join(sorted(known)) if known else "none of that name"
            raise RunError(
                f"effect {where} ({name!r}) of an earlier chapter has to be undone; this process "
                f"has {has}; import the module that defines it, or give it its old name="
            )
        return found


def place_of(definition: Definition) -> str:
    """Where in the program an effect is defined."""
    fn = definition.fn
    return f"{fn.__module__}.{getattr(fn, '__qualname__', type(fn).__qualname__)}"


undoables = Undoables()


#: How often an undo that declares no retry of its own is tried.
UNDO_RETRY = Retry(attempts=8, delay="1s", delay_max="1m")


_REPEATED = EffectRules(
    key=None, check=None, undo=None, not_happened=(), doubt="retry", settle_after_ms=0
)


_NO_ARGS = b"\x80"


def undo_of(op: Op, event: EffectDone | EffectRaised, value: Any, derived: str) -> Op:
    """The op that undoes this one, which ended so, with this outcome."""
    # As they were recorded: the flow may have changed its own copies since.
    recorded = _recorded(op)
    key = op.user_key or derived
    offered = {**op.bound, **recorded, "key": key, "outcome": value}
    undo = Op(f"undo:{op.id}", _definition(op.definition, offered), offered, _NO_ARGS)
    undo.user_key = _own_key(op.definition, offered)
    outcome = event.value if isinstance(event, EffectDone) else b""
    undo.own_digest = digest(op.digest + outcome)
    undo.context = copy_context()
    return undo


def undoable(op: Op, end: EffectDone | EffectRaised) -> Undoable:
    """What the next chapter must know of an effect that happened in this one."""
    where = place_of(op.definition)
    return Undoable(op.definition.name, where, op.id, op.args, op.digest, op.user_key, end)


def recalled(earlier: Undoable) -> tuple[Op, EffectDone | EffectRaised]:
    """An effect of an earlier chapter, by its name.

    Raises:
        RunError: this process knows no such effect, or several.
    """
    definition = undoables.find(earlier.effect, earlier.where)
    op = Op(earlier.step, definition, {}, earlier.args)
    op.bound = _recorded(op)
    op.own_digest, op.user_key = earlier.digest, earlier.key
    return op, earlier.end


def _recorded(op: Op) -> dict[str, Any]:
    """Its arguments when it was called; of an earlier chapter, those that were recorded."""
    if op.open_args is not None:
        return own_copy(op.definition, op.bound, op.open_args)
    return without_marks(op.definition.args_codec.decode(op.args))


def _own_key(call: Definition, offered: dict[str, Any]) -> str | None:
    """The key that the undo declares, if it is an effect that does and it can be made."""
    undo = None if call.effect is None else call.effect.undo
    if not isinstance(undo, Effect):
        return None
    own = undo.definition
    parameters = inspect.signature(own.fn).parameters.values()
    bound = {each.name: offered.get(each.name, each.default) for each in parameters}
    try:
        return own.key_for(bound)
    except Exception:
        # It is the user's code. What undoes this effect of this run has a key all the same.
        return None


def _definition(call: Definition, offered: dict[str, Any]) -> Definition:
    assert call.effect is not None, "only effects are undone"
    undo: Any = call.effect.undo
    own = undo.definition if isinstance(undo, (Step, Effect)) else None
    limit = None if own is None else own.timeout_seconds
    return Definition(
        name=f"undo {call.name}",
        fn=_caller(undo if own is None else own.fn, offered),
        retry=UNDO_RETRY if own is None or own.retry is ONCE else own.retry,
        timeout_seconds=max(limit or EFFECT_TIMEOUT_SECONDS, EFFECT_TIMEOUT_SECONDS_MIN),
        raises=(),
        ignore=(),
        effect=_REPEATED if own is None or own.effect is None else own.effect,
    )


def _caller(fn: Callable[..., Any], offered: dict[str, Any]) -> Callable[[], Any]:
    async def call_async() -> None:
        await call_by_name(fn, offered)

    def call_plain() -> None:
        answer = call_by_name(fn, offered)
        if inspect.iscoroutine(answer):
            answer.close()
            raise TypeError(f"undo {fn!r} returned a coroutine; write it with `async def`")

    return call_async if is_async(fn) else call_plain
