"""The conformance suite of stores."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outlive.testing.suite.entries import LEASE_SECONDS, HandClock
    from outlive.testing.suite.suite import StoreSuite

__all__ = ["LEASE_SECONDS", "HandClock", "StoreSuite"]

#: Public name -> the module that defines it; imported on first use.
_LATER = {
    "HandClock": "outlive.testing.suite.entries",
    "LEASE_SECONDS": "outlive.testing.suite.entries",
    "StoreSuite": "outlive.testing.suite.suite",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'outlive.testing.suite' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
