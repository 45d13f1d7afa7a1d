"""What the server says of itself."""

from __future__ import annotations

from collections.abc import Sequence

from outlive.stores.postgres_wire import Row

FACTS = (
    "SELECT name, setting FROM pg_settings WHERE name = ANY ('{server_version, fsync,"
    " full_page_writes, synchronous_commit, synchronous_standby_names, data_checksums}'::text[])",
    "SELECT 'read_only', current_setting('transaction_read_only')",
)


def facts_of(answers: Sequence[Sequence[Row]]) -> dict[str, str]:
    """By name."""
    return {str(name): str(value) for rows in answers for name, value in rows}
