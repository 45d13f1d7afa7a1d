"""What a child process does. It must not import the deployed module before it knows its version."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from outlive.cli import main


def play(folder: Path, environment: dict[str, str], words: list[str]) -> None:
    """The real command line, in a process of its own whose words go into files."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ.update(environment)
    # Whoever started us may have had it imported, as another version.
    sys.modules.pop("tests.workers.deploy", None)
    for stream, name in ((sys.stdout, "out"), (sys.stderr, "err")):
        path = folder / f"{os.getpid()}.{name}"
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), stream.fileno())
    sys.exit(main(words))
