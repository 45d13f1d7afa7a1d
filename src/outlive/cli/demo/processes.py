"""Children of the show: modules of this package, run by this Python, ended by their own pid."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import outlive

ERRORS_FILE = "errors.txt"


@asynccontextmanager
async def child(command: Sequence[str], folder: Path) -> AsyncIterator[Process]:
    """A process in this folder that does not outlive the block.

    It has a session of its own: Ctrl-C is for the show, which then ends its children itself. Its
    input is a pipe that nobody writes to; it closes if the show is killed.
    """
    with (folder / ERRORS_FILE).open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=folder,
            env=_environment(),
            stdin=PIPE,
            stdout=PIPE,
            stderr=errors,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def module_command(module: str, *arguments: str) -> tuple[str, ...]:
    """Run a module with this Python."""
    return (sys.executable, "-m", module, *arguments)


def _environment() -> dict[str, str]:
    """Ours, without settings that are meant for others, and with this very package."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OUTLIVE_")}
    here = str(Path(outlive.__file__).resolve().parent.parent)
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, (here, kept.get("PYTHONPATH"))))}
