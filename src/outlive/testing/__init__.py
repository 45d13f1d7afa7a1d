"""What tests of durable code need; production code never imports it.

Each name is imported when it is first used: the suite needs pytest, the others do not.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outlive.testing.clock import FakeClock
    from outlive.testing.crash import lab as crash_lab
    from outlive.testing.simulation.simulation import simulate
    from outlive.testing.suite.suite import StoreSuite

__all__ = ["FakeClock", "StoreSuite", "crash_lab", "simulate"]

#: Public name -> the module that defines it.
_LATER = {
    "FakeClock": "outlive.testing.clock",
    "StoreSuite": "outlive.testing.suite.suite",
    "simulate": "outlive.testing.simulation.simulation",
}


def __getattr__(name: str) -> Any:
    if name == "crash_lab":
        return import_module("outlive.testing.crash.lab")
    if name not in _LATER:
        raise AttributeError(f"module 'outlive.testing' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
