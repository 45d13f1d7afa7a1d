"""The other Pythons of this machine, each with a small environment of its own.

Environments are kept in ``.venv`` (which ``make clean`` removes) and made once. Whatever is found
is used; what can't be found is for the caller to name.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[2]
NEEDED = ("msgspec", "uvloop")


def find(minor: str) -> Path | None:
    """An interpreter of this version ("3.12") that really runs, if there is one."""
    if minor == f"{sys.version_info.major}.{sys.version_info.minor}":
        return Path(sys.executable)
    return next((path for path in _candidates(minor) if _runs(path, minor)), None)


def _candidates(minor: str) -> Iterator[Path]:
    on_path = shutil.which(f"python{minor}")
    if on_path:
        yield Path(on_path)
    for root in _pyenv_roots():
        yield from sorted(root.glob(f"versions/{minor}*/bin/python{minor}"), reverse=True)


def _pyenv_roots() -> Iterator[Path]:
    if root := os.environ.get("PYENV_ROOT"):
        yield Path(root)
    if pyenv := shutil.which("pyenv"):
        told = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=False)
        if told.returncode == 0:
            yield Path(told.stdout.strip())
    yield Path.home() / ".pyenv"


def _runs(path: Path, minor: str) -> bool:
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    told = subprocess.run([path, "-c", ask], capture_output=True, text=True, check=False)
    return told.returncode == 0 and told.stdout.strip() == minor


def environment(minor: str, interpreter: Path) -> Path:
    """A Python of that version that has what the package needs, and uvloop."""
    if interpreter == Path(sys.executable):
        return interpreter
    folder = ROOT / ".venv" / f"golden-{minor}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        # Tests that run side by side need the same one.
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _make(folder, interpreter)


def _make(folder: Path, interpreter: Path) -> Path:
    python, stamp = folder / "bin" / "python", folder / "stamp"
    wanted = "\n".join(f"{name}=={version(name)}" for name in NEEDED)
    if not stamp.exists() or stamp.read_text() != wanted:
        _call(interpreter, "-m", "venv", folder)
        quietly = ("--quiet", "--disable-pip-version-check")
        _call(python, "-m", "pip", "install", *quietly, *wanted.split("\n"))
        stamp.write_text(wanted)
    return python


def _call(*command: object) -> None:
    told = subprocess.run(
        [str(each) for each in command], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, f"{command}: {told.stderr[-2000:]}"


def run_module(python: Path, module: str, *arguments: object) -> str:
    """What a module of the tests prints on that Python; hashes of texts differ every time."""
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONHASHSEED": "random"}
    command = [str(python), "-W", "error", "-m", module, *map(str, arguments)]
    told = subprocess.run(
        command, cwd=ROOT, env=surroundings, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, f"{' '.join(command)}\n{told.stderr[-4000:]}"
    return told.stdout
