"""The simulation: a whole installation in virtual time, from one seed."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outlive.testing.simulation.simulation import simulate

__all__ = ["simulate"]

#: Public name -> the module that defines it; imported on first use.
_LATER = {
    "simulate": "outlive.testing.simulation.simulation",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'outlive.testing.simulation' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
