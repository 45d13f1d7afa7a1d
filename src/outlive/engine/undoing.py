"""The undo of an effect is an effect: intent, attempts, doubts and an end of its own.

Written as a plain function or a step, it is taken for harmless to repeat; written as an effect, it
goes by its own rules. It is called with the arguments of what it undoes, by name, with that
effect's ``key`` and ``outcome`` where its signature has them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from outlive.engine.binding import call_by_name, is_async
from outlive.engine.definitions import (
    EFFECT_TIMEOUT_SECONDS,
    EFFECT_TIMEOUT_SECONDS_MIN,
    Definition,
    Effect,
    EffectRules,
    Step,
)
from outlive.engine.ops import Op
from outlive.engine.redacting import own_copy, without_marks
from outlive.engine.undoables import place_of, undoables
from outlive.model.events import EffectDone, EffectRaised, Undoable
from outlive.model.ids import digest
from outlive.model.retry import ONCE, Retry

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
