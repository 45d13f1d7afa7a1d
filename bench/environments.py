"""Peers in environments of their own, at the versions that bench/peers pins.

python -m bench.environments [--into FOLDER]      makes what is missing, below .bench/ unless told
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from pathlib import Path

from bench.plan import PEER_ENVIRONMENTS, Contestant

ROOT = Path(__file__).parent.parent
PLACE = ROOT / ".bench"
#: Installing more than this many seconds means that nobody answers.
INSTALL_SECONDS_MAX = 900


class NotInstalled(Exception):
    """A peer's environment could not be made; the message says what to do."""


def python_of(contestant: Contestant) -> str:
    """The interpreter that runs it."""
    if not contestant.environment:
        return sys.executable
    return str(PLACE / contestant.environment / "bin" / "python")


def pins_of(peer: str) -> Path:
    """What is to be installed."""
    return ROOT / "bench" / "peers" / f"{peer}.txt"


def is_made(peer: str, place: Path) -> bool:
    """Whether it is there, whole, at the versions pinned now."""
    stamp = place / peer / ".pins"
    return stamp.exists() and stamp.read_text() == pins_of(peer).read_text()


def make(peer: str, place: Path) -> None:
    """An environment with what the pins say, unless it is there.

    Raises:
        NotInstalled: it could not be made.
    """
    if is_made(peer, place):
        return
    print(f"installing {peer}, this takes a minute", flush=True)
    venv.create(place / peer, clear=True, symlinks=True)
    install(peer, place / peer / "bin" / "python")
    (place / peer / ".pins").write_text(pins_of(peer).read_text())


def install(peer: str, python: Path) -> None:
    """Let this environment's pip fetch the pins into that one, quietly unless it fails."""
    words = ["-m", "pip", "--python", str(python), "install", "--quiet", "--retries", "2"]
    try:
        done = subprocess.run(
            [sys.executable, *words, "--disable-pip-version-check", "-r", pins_of(peer)],
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotInstalled(
            f"{peer} was not installed within {INSTALL_SECONDS_MAX} s; "
            "is a package index reachable?"
        ) from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise NotInstalled(
            f"{peer} can't be installed: {(said or ['pip failed without a word'])[0]}\n"
            "Is a package index reachable? pip's own settings (PIP_INDEX_URL) say which one. "
            "Without peers: python -m bench.run quick --only floor,step,effect,waiting"
        )


def main(words: list[str] | None = None) -> int:
    """All of them."""
    parser = argparse.ArgumentParser(prog="python -m bench.environments")
    parser.add_argument("--into", type=Path, default=PLACE)
    place: Path = parser.parse_args(words).into
    try:
        for peer in PEER_ENVIRONMENTS:
            make(peer, place)
    except NotInstalled as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
