"""What a killed process left is read without a line of its code."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Runs a command and names the modules of the flow that were loaded for it.
READER = """
import sys
from outlive.cli import main
code = main(sys.argv[1:])
sys.exit(f"loaded: {sorted(sys.modules)}" if any("killed_shop" in m for m in sys.modules) else code)
"""


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_a_killed_run_is_read_without_its_code(tmp_path: Path) -> None:
    """Its classes are named in the journal, and neither looked up nor built to show them."""
    store = f"sqlite:///{tmp_path}/o.db"

    killed = python("-m", "tests.values.killed_shop", store)
    shown = python("-c", READER, "show", "parcel-1", "--store", store)
    sound = python("-c", READER, "verify", "--store", store)

    assert -signal.SIGKILL == killed.returncode, killed.stderr
    assert 0 == shown.returncode, shown.stderr
    assert "pack#1" in shown.stdout
    assert '"Ada"' in shown.stdout
    assert "intended" in shown.stdout
    assert 0 == sound.returncode, sound.stderr
