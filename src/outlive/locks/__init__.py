"""Locks over processes and machines, with a fencing token."""

from outlive.errors import LockLost
from outlive.locks.lock import DistributedLock, Semaphore

__all__ = ["DistributedLock", "LockLost", "Semaphore"]
