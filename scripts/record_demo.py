"""Records the last screen of ``outlive demo`` as a picture: ``record_demo.py docs/demo.svg``.

The demo runs on a terminal of its own. What it leaves on that terminal after its live screen
closes, both columns and the result, is drawn as SVG.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

COLUMNS = 120
ROWS = 36
#: The moments of the kills; chosen once, so that pictures can be compared.
SEED = 1042
LIVE_SCREEN_ENDS = "\x1b[?1049l"
#: rich's own format fetches a font from a server; the reader's own will do.
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def perform(command: list[str]) -> str:
    """Run a command on a terminal of its own; return everything that it wrote there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        environment.pop(name, None)
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        wrote = bytearray()
        while part := _read(ours):
            wrote += part
    os.close(ours)
    if process.returncode:
        raise SystemExit(f"the demo ended with {process.returncode}:\n{wrote.decode()}")
    return wrote.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux: no process has the other end open any more
        return b""


def draw(wrote: str) -> str:
    """The last screen as SVG."""
    shown = wrote.rpartition(LIVE_SCREEN_ENDS)[2].replace("\r\n", "\n").strip("\n")
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(shown), soft_wrap=False)
    return console.export_svg(title="make demo", theme=MONOKAI, code_format=_format())


def _format() -> str:
    before, _, rest = CONSOLE_SVG_FORMAT.partition("@font-face")
    own = rest[rest.index(".{unique_id}-matrix") :]
    plain = re.sub(r"<!--.*?-->", "", before + own, flags=re.DOTALL)
    return plain.replace("Fira Code, monospace", FONT)


def main() -> None:
    """Perform, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("picture", type=Path)
    picture: Path = parser.parse_args().picture
    command = [str(Path(sys.executable).with_name("outlive")), "demo", "--seed", str(SEED)]
    picture.write_text(draw(perform(command)) + "\n")
    print(f"wrote {picture}")


if __name__ == "__main__":
    main()
