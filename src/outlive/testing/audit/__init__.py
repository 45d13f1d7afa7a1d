"""The auditor: invariants that must hold after any crash."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outlive.testing.audit.auditor import Receipt, audit

__all__ = ["Receipt", "audit"]

#: Public name -> the module that defines it; imported on first use.
_LATER = {
    "Receipt": "outlive.testing.audit.auditor",
    "audit": "outlive.testing.audit.auditor",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'outlive.testing.audit' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
