"""The public API's types have tests: files beside this one are checked, never run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_snippets import blocks
from tests.programs.conftest import PROGRAMS as PROGRAM_NAMES

ROOT = Path(__file__).parent.parent.parent
FILES = sorted(path for path in Path(__file__).parent.glob("*.py") if "test_" not in path.name)
#: Written by a user, from the documents alone.
PROGRAMS = [ROOT / "tests" / "programs" / name for name in PROGRAM_NAMES]
#: What a new user reads first.
FILE_NAME = re.compile(r"# (\w+\.py)$", re.M)
PAGES = ("README.md", "docs/tutorial/index.md")


def test_mypy_infers_what_users_expect() -> None:
    """It accepts what users write, infers what they expect, and finds their mistakes."""
    command = [sys.executable, "-m", "mypy", *map(str, [*FILES, *PROGRAMS])]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    assert 0 == ran.returncode, ran.stdout


def test_pyright_infers_what_users_expect() -> None:
    """The same for the checker that most editors run; it also reads examples and programs."""
    command = [sys.executable, "-m", "pyright"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    assert 0 == ran.returncode, ran.stdout


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
@pytest.mark.parametrize("page", PAGES)
def test_first_pages_are_typed(page: str, checker: str, tmp_path: Path) -> None:
    """The code of README and tutorial passes both checkers, strict."""
    _write_modules(page, tmp_path)
    if checker == "mypy":
        command = ["mypy", "--strict", "--config-file=", "."]
    else:
        # Blocks that go on where the one before ended import again what they show.
        settings = {"typeCheckingMode": "strict", "reportDuplicateImport": False}
        (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
        command = ["pyright", "--pythonpath", sys.executable]

    ran = subprocess.run(
        [sys.executable, "-m", *command], cwd=tmp_path, capture_output=True, text=True
    )

    assert 0 == ran.returncode, ran.stdout


def _write_modules(page: str, folder: Path) -> None:
    """Its blocks that begin with a file's name, or all of them as one file if none does."""
    found = [body for _, kind, body in blocks(ROOT / page) if kind == "python"]
    files = {named[1]: body for body in found if (named := FILE_NAME.match(body))}
    for name, body in (files or {"page.py": "\n\n".join(found)}).items():
        (folder / name).write_text(f"{body}\n")
