"""Jobs that are paid through Masumi: its payment service as an escrow, and its package on a store.

What needs the masumi package is imported when it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from outlive.jobs.masumi.escrow import MasumiEscrow, input_hash, output_hash
from outlive.jobs.masumi.states import ACTIONS, STATES, standing_of

if TYPE_CHECKING:
    from outlive.jobs.masumi.recovery import (
        JobRecovery,
        import_jobs,
        reattach_payment_monitoring,
        recover_jobs_on_startup,
    )
    from outlive.jobs.masumi.storage import MasumiJobStorage

__all__ = [
    "ACTIONS",
    "STATES",
    "JobRecovery",
    "MasumiEscrow",
    "MasumiJobStorage",
    "import_jobs",
    "input_hash",
    "output_hash",
    "reattach_payment_monitoring",
    "recover_jobs_on_startup",
    "standing_of",
]

#: Public name -> the module that defines it.
_LATER = {
    "JobRecovery": "recovery",
    "MasumiJobStorage": "storage",
    "import_jobs": "recovery",
    "reattach_payment_monitoring": "recovery",
    "recover_jobs_on_startup": "recovery",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'outlive.jobs.masumi' has no attribute {name!r}")
    return getattr(import_module(f"outlive.jobs.masumi.{_LATER[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
