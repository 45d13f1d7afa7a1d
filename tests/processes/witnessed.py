"""The command line as it is, on a store that writes down what it acknowledged."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import outlive.app.open
from outlive.cli import main
from tests.harness.stores import open_witnessed

if __name__ == "__main__":
    folder = Path(os.environ["CAST_FOLDER"])
    outlive.app.open.open_store = partial(open_witnessed, folder)  # type: ignore[assignment]
    raise SystemExit(main())
