"""Outlive for plain code: ``from outlive import sync as outlive``. The same names, nothing awaited.

In a plain flow (``@outlive.flow`` on a ``def``) steps and effects are called, however they were
written, and the verbs here wait for their outcome. Outside, ``run``, ``start`` and the handle's
verbs block. What declares and what waits is here at once; what runs flows is imported when used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from outlive import errors
from outlive.engine.decorators import effect, flow, register, step
from outlive.engine.definitions import NOT_HAPPENED, UNKNOWN, Effect, Flow, Step
from outlive.engine.fanout import Outcome
from outlive.engine.people import Approval
from outlive.engine.verbs import attempt, key, now, patched, pins, random, run_id, uuid
from outlive.errors import NotHappened
from outlive.model.queues import Queue, Rate
from outlive.model.retry import Retry
from outlive.sync.verbs import (
    Request,
    approve,
    ask,
    call,
    carry,
    gather,
    map,
    requests,
    sleep,
    spawn,
    timeout,
    wait_signal,
)

if TYPE_CHECKING:
    from outlive.posting import Question
    from outlive.sync.app import App
    from outlive.sync.app import open_app as open
    from outlive.sync.defaults import close, ensure, find, get, run, start, submit
    from outlive.sync.handle import Handle

__all__ = [
    "NOT_HAPPENED",
    "UNKNOWN",
    "App",
    "Approval",
    "Effect",
    "Flow",
    "Handle",
    "NotHappened",
    "Outcome",
    "Question",
    "Queue",
    "Rate",
    "Request",
    "Retry",
    "Step",
    "approve",
    "ask",
    "attempt",
    "call",
    "carry",
    "close",
    "effect",
    "ensure",
    "errors",
    "find",
    "flow",
    "gather",
    "get",
    "key",
    "map",
    "now",
    "open",
    "patched",
    "pins",
    "random",
    "register",
    "requests",
    "run",
    "run_id",
    "sleep",
    "spawn",
    "start",
    "step",
    "submit",
    "timeout",
    "uuid",
    "wait_signal",
]

#: Public name -> where it is defined.
_LATER = {
    "App": ("outlive.sync.app", "App"),
    "Handle": ("outlive.sync.handle", "Handle"),
    "Question": ("outlive.posting", "Question"),
    "close": ("outlive.sync.defaults", "close"),
    "ensure": ("outlive.sync.defaults", "ensure"),
    "find": ("outlive.sync.defaults", "find"),
    "get": ("outlive.sync.defaults", "get"),
    "open": ("outlive.sync.app", "open_app"),
    "run": ("outlive.sync.defaults", "run"),
    "start": ("outlive.sync.defaults", "start"),
    "submit": ("outlive.sync.defaults", "submit"),
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'outlive.sync' has no attribute {name!r}")
    module, attribute = _LATER[name]
    value = globals()[name] = getattr(import_module(module), attribute)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
