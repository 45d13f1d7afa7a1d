"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import re
import sqlite3
import subprocess
from pathlib import Path


def describe(folder: Path) -> dict[str, str]:
    """The machine, the disk below a folder, and the versions of what everybody uses."""
    return {
        "processor": _first(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo")),
        "cores": str(os.cpu_count()),
        "memory": _memory(),
        "file system": _file_system(folder),
        "kernel": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "SQLite": sqlite3.sqlite_version,
    }


def load() -> str:
    """How busy the machine is with everything."""
    return " ".join(f"{each:.2f}" for each in os.getloadavg())


def commit() -> str:
    """What was measured of ours."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def _first(pattern: str, path: Path) -> str:
    found = re.search(pattern, path.read_text()) if path.exists() else None
    return found.group(1).strip() if found else "unknown"


def _memory() -> str:
    kilobytes = _first(r"MemTotal:\s*(\d+) kB", Path("/proc/meminfo"))
    return f"{int(kilobytes) / 1024**2:.0f} GiB" if kilobytes.isdecimal() else kilobytes


def _file_system(folder: Path) -> str:
    done = subprocess.run(
        ["df", "--output=fstype", folder], capture_output=True, text=True, check=False
    )
    return done.stdout.split()[-1] if done.stdout.split() else "unknown"
