"""What users install: the wheel alone, in an empty environment."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
HELLO_LINES_MAX = 12
IMPORT_RATIO_MAX = 3.0
PROBES = 5
PROBE = "import time; began = time.perf_counter(); import {}; print(time.perf_counter() - began)"


def run(*command: str | Path, cwd: Path) -> str:
    """The command's output; it must end well. Nothing of this environment reaches it."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "OUTLIVE", "COV"))}
    ran = subprocess.run(command, cwd=cwd, env=kept, capture_output=True, text=True)
    assert 0 == ran.returncode, f"{command}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from what is here."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", folder, ".", cwd=ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that holds the wheel and what it asks for, nothing else."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", wheel, cwd=folder)
    return python


def hello() -> str:
    """The first example of the README."""
    found = re.search(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    assert found, "README.md has no python block"
    return found[1]


def import_ms(python: Path, module: str, cwd: Path) -> float:
    """Median over fresh processes, after one that fills the caches."""
    run(python, "-c", PROBE.format(module), cwd=cwd)
    took = [float(run(python, "-c", PROBE.format(module), cwd=cwd)) for _ in range(PROBES)]
    return statistics.median(took) * 1000


def test_hello_is_short() -> None:
    """The README's first example fits on a slide."""
    assert len([line for line in hello().splitlines() if line.strip()]) <= HELLO_LINES_MAX


def test_hello_runs_with_the_wheel_alone(installed: Path, tmp_path: Path) -> None:
    """The README's first example works in an empty folder, and once more with the same words."""
    (tmp_path / "hello.py").write_text(hello())

    first = run(installed, "hello.py", cwd=tmp_path)
    again = run(installed, "hello.py", cwd=tmp_path)

    assert first.strip()
    assert first.splitlines()[-1] == again.splitlines()[-1]


def test_the_command_is_installed(installed: Path, tmp_path: Path) -> None:
    """``pip install outlive`` gives the command line."""
    assert "usage" in run(installed.with_name("outlive"), "--help", cwd=tmp_path).lower()


def test_the_wheel_is_typed(installed: Path, tmp_path: Path) -> None:
    """Type checkers may use the package's annotations."""
    code = (
        "import importlib.resources as r; print(r.files('outlive').joinpath('py.typed').is_file())"
    )

    assert "True" == run(installed, "-c", code, cwd=tmp_path).strip()


@pytest.mark.alone("time")
def test_import_is_quick(
    installed: Path, tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    """Importing Outlive takes at most three times as long as importing asyncio alone."""
    asyncio_ms = import_ms(installed, "asyncio", tmp_path)
    outlive_ms = import_ms(installed, "outlive", tmp_path)
    ratio = outlive_ms / asyncio_ms
    figure("import asyncio, median ms", f"{asyncio_ms:.1f}")
    figure("import outlive, median ms", f"{outlive_ms:.1f}")
    figure("import outlive / import asyncio", f"{ratio:.2f}")

    assert ratio <= IMPORT_RATIO_MAX
