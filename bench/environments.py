"""Peers in environments of their own, at the versions that bench/peers pins.

python -m bench.environments        makes what is missing, below .bench/
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

from bench.plan import PEERS, Contestant

ROOT = Path(__file__).parent.parent
PLACE = ROOT / ".bench"


def python_of(contestant: Contestant) -> str:
    """The interpreter that runs it."""
    if not contestant.environment:
        return sys.executable
    return str(PLACE / contestant.environment / "bin" / "python")


def make(peer: str) -> None:
    """An environment with what the pins say, unless it is there."""
    pins = ROOT / "bench" / "peers" / f"{peer}.txt"
    stamp = PLACE / peer / ".pins"
    if stamp.exists() and stamp.read_text() == pins.read_text():
        return
    print(f"installing {peer} into .bench/{peer}", flush=True)
    venv.create(PLACE / peer, with_pip=True, clear=True)
    quietly = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([PLACE / peer / "bin" / "python", *quietly, "-r", pins], check=True)
    stamp.write_text(pins.read_text())


def main() -> None:
    """All of them."""
    for peer in PEERS:
        make(peer)


if __name__ == "__main__":
    main()
