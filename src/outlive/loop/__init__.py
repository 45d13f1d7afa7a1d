"""An agent's loop as an explicit state machine, saved at transitions and continued after a crash.

Write a subclass of ``Loop`` with a handler for each state; ``drive`` it on any store. It is a run
like any other: killed anywhere, the next process continues from its last checkpoint.
"""

from outlive.errors import IllegalTransition, IncompatibleCheckpoint
from outlive.loop.driver import LoopStore
from outlive.loop.loop import Loop
from outlive.loop.machine import State
from outlive.loop.snapshot import Snapshot
from outlive.loop.verbs import Arranged, arrange, drive, load, resume, step_once

__all__ = [
    "Arranged",
    "IllegalTransition",
    "IncompatibleCheckpoint",
    "Loop",
    "LoopStore",
    "Snapshot",
    "State",
    "arrange",
    "drive",
    "load",
    "resume",
    "step_once",
]
