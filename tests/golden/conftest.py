"""Golden stores, restored where a test may go on with them."""

from __future__ import annotations

from tests.postgres.conftest import postgres

__all__ = ["postgres"]
