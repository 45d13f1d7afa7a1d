"""What the server says of itself."""

from __future__ import annotations

from collections.abc import Sequence

from outlive.stores.postgres_wire import Row
from outlive.stores.tables import LIMITS

FACTS = (
    "SELECT name, setting FROM pg_settings WHERE name = ANY ('{server_version, fsync,"
    " full_page_writes, synchronous_commit, synchronous_standby_names, data_checksums}'::text[])",
    "SELECT 'read_only', current_setting('transaction_read_only')",
)

_SHOWN_MAX = 10
#: Tombstones of runs that are there, outcomes of runs that are not, limits of queues.
BESIDE_JOURNALS = (
    "SELECT t.run_id FROM {s}.tombstones t JOIN {s}.runs r USING (run_id)"
    f" WHERE t.keep_until > {{s}}.now_v1(NULL) ORDER BY 1 LIMIT {_SHOWN_MAX}",
    "SELECT o.run_id, o.step FROM {s}.outcomes o WHERE NOT EXISTS"
    f" (SELECT FROM {{s}}.runs r WHERE r.run_id = o.run_id) ORDER BY 1, 2 LIMIT {_SHOWN_MAX}",
    f"SELECT q.name, {', '.join(f'q.{name}' for name in LIMITS)} FROM {{s}}.queues q ORDER BY 1",
)


def facts_of(answers: Sequence[Sequence[Row]]) -> dict[str, str]:
    """By name."""
    return {str(name): str(value) for rows in answers for name, value in rows}
