"""What an extra brings is imported when it is used, and not before."""

from __future__ import annotations

from tests.harness.programs import run_python

EXTRAS = ("cryptography", "psycopg", "uvloop")


def test_the_package_imports_no_extra() -> None:
    """Whoever installed none of them can use everything else."""
    code = (
        "import sys, outlive.cli, outlive.app.open, outlive.sync, outlive.app.default\n"
        "import outlive.checkpoints, outlive.sync.checkpoints\n"
        f"found = set({EXTRAS!r}) & set(sys.modules)\n"
        "raise SystemExit(f'imported: {found}' if found else 0)"
    )

    ran = run_python("-c", code)

    assert "" == ran.stderr
    assert 0 == ran.returncode
