"""A run that was begun under one release of openai-agents is finished under another."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import Figure

ROOT = Path(__file__).parents[2]
OLD, NEW = "openai-agents==0.19.4", "openai-agents"
#: What the package itself needs.
NEEDED = ("msgspec>=0.21,<0.23", "rich>=13.7,<16", "backports.zstd>=1,<2")
CALLS = ("call_a", "call_b", "call_c", "call_d", "call_e")
WANTED = sorted([f"0@agent/model#{n}" for n in (1, 2, 3)] + [f"0@agent/use:{c}#1" for c in CALLS])


def environment(framework: str) -> Path:
    """A Python with that release, made once, from PyPI."""
    folder = ROOT / ".venv" / f"frameworks-{framework.replace('=', '')}"
    folder.mkdir(parents=True, exist_ok=True)
    python, stamp = folder / "bin" / "python", folder / "stamp"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists():
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            install = [python, "-m", "pip", "install", "--quiet", framework, *NEEDED]
            subprocess.run(install, check=True, capture_output=True)
            stamp.touch()
    return python


def play(python: Path, folder: Path, dies_at: str = "") -> subprocess.CompletedProcess[str]:
    store, log = f"sqlite:///{folder / 'runs.db'}", str(folder / "log.txt")
    command = [str(python), "-m", "tests.frameworks.openai_agent", store, log, dies_at]
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    return subprocess.run(
        command, cwd=ROOT, env=surroundings, capture_output=True, text=True, check=False
    )


@pytest.mark.full
@pytest.mark.parametrize("dies_at", CALLS)
def test_begun_under_an_old_release_and_finished_under_the_newest(
    tmp_path: Path, dies_at: str, figure: Figure
) -> None:
    """Killed in any tool: ids and keys are the same, and no tool that ran is run again."""
    begun = play(environment(OLD), tmp_path, dies_at)
    assert -signal.SIGKILL == begun.returncode, begun.stderr[-2000:]

    ended = play(environment(NEW), tmp_path)

    assert 0 == ended.returncode, ended.stderr[-4000:]
    told = json.loads(ended.stdout)
    assert "ready" == told["outcome"]
    assert WANTED == told["steps"]
    ran = [line.split() for line in (tmp_path / "log.txt").read_text().splitlines()]
    keys: dict[str, set[str]] = {call: set() for call in CALLS}
    for call, key in ran:
        keys[call].add(key)
    assert all(len(each) == 1 for each in keys.values()), ran
    counted = Counter(call for call, _ in ran)
    figure(f"frameworks: tools run, killed in {dies_at}", dict(counted))
    # Beside the one that died others were under way: their receiver honours the key.
    assert sum(counted.values()) <= len(CALLS) + 2
