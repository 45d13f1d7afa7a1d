"""Durable runs for Python agents: kill it anywhere, it goes on where it was.

What a module needs to declare flows is here at once; what runs them is imported when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from outlive import errors
from outlive.engine.anonymous import EffectOptions, StepOptions, do
from outlive.engine.blob import Blob
from outlive.engine.decorators import effect, flow, register, step
from outlive.engine.definitions import NOT_HAPPENED, UNKNOWN, Effect, Flow, Step
from outlive.engine.people import (
    Approval,
    Request,
    approve,
    ask,
    requests,
    timeout,
    wait_signal,
)
from outlive.engine.publish import publish, tag
from outlive.engine.streams import stream
from outlive.engine.verbs import (
    Outcome,
    attempt,
    call,
    carry,
    fired_at,
    in_flow,
    key,
    map,
    now,
    on_host,
    patched,
    pins,
    place,
    random,
    replaying,
    run_id,
    sleep,
    spawn,
    usage,
    uuid,
)
from outlive.errors import NotHappened
from outlive.model.queues import Queue, Rate
from outlive.model.redaction import Redaction
from outlive.model.retention import Retention
from outlive.model.retry import Retry
from outlive.model.usage import Usage

if TYPE_CHECKING:
    from outlive.app.app import App
    from outlive.app.default import (
        ensure,
        find,
        fire_schedule,
        fork,
        get,
        pause_schedule,
        resume_schedule,
        run,
        schedule,
        schedules,
        start,
        submit,
        unschedule,
    )
    from outlive.app.handle import Handle
    from outlive.app.log import KeyedLog, LogEntry, LogKey, LogPage, LogView, LogWrite, PlainLog
    from outlive.app.mail import Question
    from outlive.app.open import open_app as open
    from outlive.app.schedules import Schedule
    from outlive.app.streams import Chunk

__all__ = [
    "NOT_HAPPENED",
    "UNKNOWN",
    "App",
    "Approval",
    "Blob",
    "Chunk",
    "Effect",
    "EffectOptions",
    "Flow",
    "Handle",
    "KeyedLog",
    "LogEntry",
    "LogKey",
    "LogPage",
    "LogView",
    "LogWrite",
    "NotHappened",
    "Outcome",
    "PlainLog",
    "Question",
    "Queue",
    "Rate",
    "Redaction",
    "Request",
    "Retention",
    "Retry",
    "Schedule",
    "Step",
    "StepOptions",
    "Usage",
    "approve",
    "ask",
    "attempt",
    "call",
    "carry",
    "do",
    "effect",
    "ensure",
    "errors",
    "find",
    "fire_schedule",
    "fired_at",
    "flow",
    "fork",
    "get",
    "in_flow",
    "key",
    "map",
    "now",
    "on_host",
    "open",
    "patched",
    "pause_schedule",
    "pins",
    "place",
    "publish",
    "random",
    "register",
    "replaying",
    "requests",
    "resume_schedule",
    "run",
    "run_id",
    "schedule",
    "schedules",
    "sleep",
    "spawn",
    "start",
    "step",
    "stream",
    "submit",
    "tag",
    "timeout",
    "unschedule",
    "usage",
    "uuid",
    "wait_signal",
]

#: Public name -> the module that defines it; imported on first use. All others: ``app.default``.
_LATER = {
    "App": "outlive.app.app",
    "Chunk": "outlive.app.streams",
    "Handle": "outlive.app.handle",
    "KeyedLog": "outlive.app.log",
    "LogEntry": "outlive.app.log",
    "LogKey": "outlive.app.log",
    "LogPage": "outlive.app.log",
    "LogView": "outlive.app.log",
    "LogWrite": "outlive.app.log",
    "PlainLog": "outlive.app.log",
    "Question": "outlive.app.mail",
    "Schedule": "outlive.app.schedules",
    "open": "outlive.app.open",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'outlive' has no attribute {name!r}")
    module = import_module(_LATER.get(name, "outlive.app.default"))
    value = globals()[name] = getattr(module, "open_app" if name == "open" else name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
