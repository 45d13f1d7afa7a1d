"""Durable runs for Python agents: kill it anywhere, it goes on where it was."""

from outlive import errors
from outlive.app import App, find, get, run, start
from outlive.app import open_app as open
from outlive.engine.decorators import effect, flow, register, step
from outlive.engine.definitions import NOT_HAPPENED, UNKNOWN, Effect, Flow, Step
from outlive.engine.verbs import attempt, key, now, random, run_id, sleep, uuid
from outlive.errors import NotHappened
from outlive.handle import Handle
from outlive.model.retry import Retry

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
    "uuid",
]
