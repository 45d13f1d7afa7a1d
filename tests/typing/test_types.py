"""The public API's types have tests: files beside this one are checked, never run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_types_are_inferred_as_users_expect() -> None:
    """mypy accepts what users write, infers what they expect, and finds their mistakes."""
    names = ("public_api", "plain_code", "loops", "own_loops")
    files = [f"tests/typing/{name}.py" for name in names]
    command = [sys.executable, "-m", "mypy", *files]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    assert 0 == ran.returncode, ran.stdout
