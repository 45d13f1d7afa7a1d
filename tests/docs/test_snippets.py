"""Every example in README.md and docs/ is run: nothing that we show may be wrong.

The blocks of one file run in order, in one namespace, in a process and folder of their own:

- ``python``: executed. If its first line is a comment with a file name (``# support.py``), the
  block is also saved under that name, for the commands that follow.
- ``console``: lines that begin with ``$ outlive`` or ``$ python`` are run and must end with 0;
  output that is shown below must be what comes out, but for what ``...`` stands for (see
  ``run_blocks.matches``). ``$ echo $?`` shows the exit code of a command that is meant to fail.
  A command that ends in ``&`` runs until the file's end.

``OUTLIVE_STORE`` is a new file, or for pages about a server, one that is started for them.

No other kind of block may hold code that could have been one of these two.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.docs.run_blocks import matches
from tests.harness.postgres_server import PostgresServer

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([*ROOT.glob("README.md"), *ROOT.glob("docs/**/*.md")])
RUNNER = Path(__file__).with_name("run_blocks.py")
FENCE = re.compile(
    r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```$", re.M | re.S
)
#: Blocks that hold no Python and no command of ours.
PLAIN = {"text", "toml", "json", "mermaid"}
README_LINES_MAX = 120
ON_POSTGRES = {"docs/howto/production-postgres.md"}
ON_BOTH = {"docs/howto/transactional-steps.md"}
#: Far more than any page needs, also on a machine that is busy with other tests.
SECONDS_MAX = 400


def blocks(page: Path) -> list[tuple[int, str, str]]:
    """(line, kind, body) of every fenced block of a page."""
    text = page.read_text()
    return [
        (
            text.count("\n", 0, found.start()) + 2,
            found["info"].strip(),
            "\n".join(line.removeprefix(found["indent"]) for line in found["body"].splitlines()),
        )
        for found in FENCE.finditer(text)
    ]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@contextmanager
def store_for(kind: str, folder: Path) -> Iterator[str]:
    """The URL of an empty store."""
    if kind == "postgresql":
        with PostgresServer() as server:
            yield server.url()
    else:
        yield f"sqlite:///{folder}/examples.db"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_blocks_are_of_a_known_kind(page: Path) -> None:
    """A block is run, or is of a kind that can't be run; there is no third way."""
    unknown = [
        f"{name(page)}:{line}: {kind or 'no kind'}"
        for line, kind, _ in blocks(page)
        if kind not in PLAIN | {"python", "console"}
    ]

    assert [] == unknown


def stores_of(page: Path) -> list[str]:
    """The stores that a page is about."""
    both = ["sqlite", "postgresql"]
    return both if name(page) in ON_BOTH else both[1:] if name(page) in ON_POSTGRES else both[:1]


@pytest.mark.parametrize(
    ("page", "kind"),
    [(page, kind) for page in PAGES for kind in stores_of(page)],
    ids=lambda each: name(each) if isinstance(each, Path) else each,
)
def test_examples_run(page: Path, kind: str, tmp_path: Path) -> None:
    """All examples of a page work, in the order in which a reader meets them."""
    script = [block for block in blocks(page) if block[1] not in PLAIN]
    folder = tmp_path / "reader"
    folder.mkdir()
    (tmp_path / "blocks.json").write_text(json.dumps(script))
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        "COLUMNS": "100",
    }
    with store_for(kind, tmp_path) as url:
        ran = subprocess.run(
            [sys.executable, RUNNER, tmp_path / "blocks.json", name(page)],
            cwd=folder, env=environment | {"OUTLIVE_STORE": url},
            capture_output=True, text=True, timeout=SECONDS_MAX,
        )  # fmt: skip

    assert 0 == ran.returncode, f"{ran.stdout}\n{ran.stderr}"


@pytest.mark.parametrize(
    ("shown", "is_right"),
    [
        ("a\nb", True),
        ("a", False),
        ("a\n...", True),
        ("a\nb\n...", True),
        ("...\nb", True),
        ("...\nc", False),
        ("a\n...\nc", False),
        ("...", True),
    ],
)
def test_shown_lines_must_come_out(shown: str, is_right: bool) -> None:
    """Dots stand for any lines, and for none; what is shown beside them is compared."""
    assert is_right == matches(shown, "a\nb\n")


@pytest.mark.parametrize(
    ("shown", "is_right"),
    [
        ("RUN FLOW ...\nr 5 ms told by ...", True),
        ("RUN  FLOW  ...\nr    7 ms  told by its check", True),
        ("RUN  FLOW  ...\nr    7 ms  told by a human", False),
        ("RUN  ...\ns  ...", False),
        ("RUN  FLOW  AGE\nr    7 ms  told by its check", False),
    ],
)
def test_dots_in_a_line_stand_for_a_part_of_it(shown: str, is_right: bool) -> None:
    """Beside them widths, times and ids may be others, and nothing else."""
    assert is_right == matches(shown, "RUN    FLOW  AGE\nr      12 ms  told by its check\n")


def test_pages_about_a_server_are_there() -> None:
    """Or their examples would run on a file, unnoticed."""
    assert ON_POSTGRES | ON_BOTH <= {name(page) for page in PAGES}


def test_the_readme_has_examples() -> None:
    """The search for blocks finds those of the README."""
    assert "python" in {kind for _, kind, _ in blocks(ROOT / "README.md")}


def test_the_readme_is_short() -> None:
    """Whoever has two minutes has read it."""
    assert len((ROOT / "README.md").read_text().splitlines()) < README_LINES_MAX


def test_the_main_example_of_the_readme_survives_a_kill_and_a_second_start(tmp_path: Path) -> None:
    """Killed right after the bank has paid, then run twice: it is paid once."""
    _, source = (body for _, kind, body in blocks(ROOT / "README.md") if kind == "python")
    killed = source.replace("    return cents\n", "    import os; os.kill(os.getpid(), 9)\n")
    assert killed != source
    codes = []
    for each in (killed, source, source):
        (tmp_path / "support.py").write_text(each)
        ran = subprocess.run([sys.executable, "support.py"], cwd=tmp_path, timeout=120)
        codes.append(ran.returncode)
    with closing(sqlite3.connect(tmp_path / "bank.db")) as bank:
        paid = bank.execute("SELECT key, cents FROM refunds").fetchall()

    assert ([-9, 0, 0], [("refund:7", 1999)]) == (codes, paid)
