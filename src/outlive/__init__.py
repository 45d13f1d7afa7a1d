"""Durable runs for Python agents: kill it anywhere, it goes on where it was.

What a module needs to declare flows is here at once; what runs them is imported when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from outlive import errors
from outlive.engine.decorators import effect, flow, register, step
from outlive.engine.definitions import NOT_HAPPENED, UNKNOWN, Effect, Flow, Step
from outlive.engine.verbs import attempt, key, now, random, run_id, sleep, uuid
from outlive.errors import NotHappened
from outlive.model.retry import Retry

if TYPE_CHECKING:
    from outlive.app import App
    from outlive.app import open_app as open
    from outlive.defaults import find, get, run, start, submit
    from outlive.handle import Handle

__all__ = [
    "NOT_HAPPENED",
    "UNKNOWN",
    "App",
    "Effect",
    "Flow",
    "Handle",
    "NotHappened",
    "Retry",
    "Step",
    "attempt",
    "effect",
    "errors",
    "find",
    "flow",
    "get",
    "key",
    "now",
    "open",
    "random",
    "register",
    "run",
    "run_id",
    "sleep",
    "start",
    "step",
    "submit",
    "uuid",
]

#: Public name -> where it is defined.
_LATER = {
    "App": ("outlive.app", "App"),
    "Handle": ("outlive.handle", "Handle"),
    "find": ("outlive.defaults", "find"),
    "get": ("outlive.defaults", "get"),
    "open": ("outlive.app", "open_app"),
    "run": ("outlive.defaults", "run"),
    "start": ("outlive.defaults", "start"),
    "submit": ("outlive.defaults", "submit"),
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'outlive' has no attribute {name!r}")
    module, attribute = _LATER[name]
    value = globals()[name] = getattr(import_module(module), attribute)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
