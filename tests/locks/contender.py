"""A process that enters a critical section again and again; its receiver checks fencing tokens."""

from __future__ import annotations

import fcntl
import sys
import time
from pathlib import Path

from outlive.errors import LockLost
from outlive.locks import DistributedLock


def write(receiver: Path, token: int, what: str) -> bool:
    """A write at the receiver: refused if it has seen a higher token."""
    with receiver.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        lines = file.read().splitlines()
        seen = max((int(line.split()[0]) for line in lines), default=0)
        if token < seen:
            return False
        file.write(f"{token} {what}\n")
        file.flush()
        return True


def main(url: str, folder: str, name: str, sections: int, inside: float) -> None:
    receiver, log = Path(folder) / "receiver", Path(folder) / f"log-{name}"
    lock = DistributedLock(resource="gate", persistence=url, timeout_seconds=120)
    for _ in range(sections):
        try:
            with lock:
                entered = write(receiver, lock.token, f"{name} enter")
                time.sleep(inside)
                left = entered and write(receiver, lock.token, f"{name} leave")
        except LockLost:
            left = False
        with log.open("a") as file:
            file.write("done\n" if left else "fenced\n")
    lock.close()


if __name__ == "__main__":
    _, where, place, own, count, seconds = sys.argv
    main(where, place, own, int(count), float(seconds))
