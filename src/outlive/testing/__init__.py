"""Tools for tests of durable code; production code never imports this package.

Each name is imported on first use: ``StoreSuite`` needs pytest, the others do not.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outlive.testing.audit.auditor import Receipt
    from outlive.testing.clock import FakeClock
    from outlive.testing.crash import lab as crash_lab
    from outlive.testing.crash.child import Stage
    from outlive.testing.crash.failing_store import FailingStore
    from outlive.testing.crash.lab import Lab, Play
    from outlive.testing.ledger import Ledger
    from outlive.testing.payment import FakePaymentService
    from outlive.testing.simulation.simulation import simulate
    from outlive.testing.suite.suite import StoreSuite

__all__ = [
    "FailingStore",
    "FakeClock",
    "FakePaymentService",
    "Lab",
    "Ledger",
    "Play",
    "Receipt",
    "Stage",
    "StoreSuite",
    "crash_lab",
    "simulate",
]

#: Public name -> the module that defines it.
_LATER = {
    "FailingStore": "outlive.testing.crash.failing_store",
    "FakeClock": "outlive.testing.clock",
    "FakePaymentService": "outlive.testing.payment",
    "Lab": "outlive.testing.crash.lab",
    "Ledger": "outlive.testing.ledger",
    "Play": "outlive.testing.crash.lab",
    "Receipt": "outlive.testing.audit.auditor",
    "Stage": "outlive.testing.crash.child",
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
