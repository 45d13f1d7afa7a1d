"""The crash lab: kill a process at each durable point, resume, audit."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outlive.testing.crash.child import Stage
    from outlive.testing.crash.failing_store import FailingStore
    from outlive.testing.crash.lab import Lab, Play

__all__ = ["FailingStore", "Lab", "Play", "Stage"]

#: Public name -> the module that defines it; imported on first use.
_LATER = {
    "FailingStore": "outlive.testing.crash.failing_store",
    "Lab": "outlive.testing.crash.lab",
    "Play": "outlive.testing.crash.lab",
    "Stage": "outlive.testing.crash.child",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'outlive.testing.crash' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
