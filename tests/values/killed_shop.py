"""A flow that kills its own process in the middle of an effect: see ``test_killed_reading.py``.

python -m tests.values.killed_shop STORE
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass

import outlive


@dataclass
class Parcel:
    """What only this module knows."""

    to: str


@outlive.step
async def pack(name: str) -> Parcel:
    """Something whose class is named in the journal."""
    return Parcel(name)


@outlive.effect
async def send(parcel: Parcel) -> None:
    """The end of the process."""
    os.kill(os.getpid(), signal.SIGKILL)


@outlive.flow
async def ship(name: str) -> None:
    """Pack, then die."""
    await send(await pack(name))


if __name__ == "__main__":
    outlive.run(ship, "Ada", id="parcel-1", store=sys.argv[1])
