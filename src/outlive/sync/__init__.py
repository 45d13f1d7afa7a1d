"""Outlive for plain code: ``from outlive import sync as outlive``. The same names, nothing awaited.

In a plain flow (``@outlive.flow`` on a ``def``) steps and effects are called, however they were
written, and the verbs here wait for their outcome. Outside, ``run``, ``start`` and the handle's
verbs block. What declares and what waits is here at once; what runs flows is imported when used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from outlive import errors
from outlive.engine.anonymous import EffectOptions, StepOptions
from outlive.engine.blob import Blob
from outlive.engine.decorators import effect, flow, register, step
from outlive.engine.definitions import NOT_HAPPENED, UNKNOWN, Effect, Flow, Step
from outlive.engine.people import Approval
from outlive.engine.publish import publish_plainly as publish
from outlive.engine.publish import tag_plainly as tag
from outlive.engine.streams import plain_stream as stream
from outlive.engine.verbs import (
    Outcome,
    attempt,
    fired_at,
    in_flow,
    key,
    now,
    patched,
    pins,
    place,
    random,
    replaying,
    run_id,
    usage,
    uuid,
)
from outlive.errors import NotHappened
from outlive.model.queues import Queue, Rate
from outlive.model.redaction import Redaction
from outlive.model.retention import Retention
from outlive.model.retry import Retry
from outlive.model.usage import Usage
from outlive.sync.verbs import (
    Request,
    approve,
    ask,
    call,
    carry,
    do,
    gather,
    map,
    on_host,
    requests,
    sleep,
    spawn,
    timeout,
    wait_signal,
)

if TYPE_CHECKING:
    from outlive.app.log import KeyedLog, LogEntry, LogKey, LogPage, LogView, LogWrite, PlainLog
    from outlive.app.mail import Question
    from outlive.app.schedules import Schedule
    from outlive.app.streams import Chunk
    from outlive.sync.app import App
    from outlive.sync.app import open_app as open
    from outlive.sync.default import (
        close,
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
    from outlive.sync.handle import Handle

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
    "close",
    "do",
    "effect",
    "ensure",
    "errors",
    "find",
    "fire_schedule",
    "fired_at",
    "flow",
    "fork",
    "gather",
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

#: Public name -> the module that defines it; imported on first use. All others: ``sync.default``.
_LATER = {
    "PlainLog": "outlive.app.log",
    "LogWrite": "outlive.app.log",
    "LogView": "outlive.app.log",
    "LogPage": "outlive.app.log",
    "LogKey": "outlive.app.log",
    "LogEntry": "outlive.app.log",
    "KeyedLog": "outlive.app.log",
    "App": "outlive.sync.app",
    "Chunk": "outlive.app.streams",
    "Handle": "outlive.sync.handle",
    "Question": "outlive.app.mail",
    "Schedule": "outlive.app.schedules",
    "open": "outlive.sync.app",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'outlive.sync' has no attribute {name!r}")
    module = import_module(_LATER.get(name, "outlive.sync.default"))
    value = globals()[name] = getattr(module, "open_app" if name == "open" else name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
