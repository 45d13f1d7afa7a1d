"""Which index a query goes by, for stores that keep their headers in a table ``runs``.

Runs are listed in the order of their starts (``started_at``, then ``id``, the number of creation),
oldest or newest first. Every index that ``find`` uses ends with these two, so an *arm*, the entries
of one index with the same leading values, is in that order already, and a page of several arms is
merged from their beginnings. A query goes by one index (of several it might go by, the one with the
fewest entries); what else it asks is compared row by row, over so many rows at most: then the page
is short, and its cursor goes on from there.
"""

from __future__ import annotations

#: Characters of a tag's name, and of its value, that are indexed.
INDEXED_CHARS_MAX = 200

#: The conditions of partial indexes. A query repeats them to the letter, or no index is used.
IS_RUN = "flow <> ''"
#: Rows whose status no index of statuses has: most runs are never in it.
UNLISTED = "({row}status = 'completed' OR {row}status = 'running')"
IS_LISTED = f"{IS_RUN} AND status <> 'completed' AND (status <> 'running' OR worker IS NULL)"
IS_HELD = "worker IS NOT NULL"
HAS_PARENT = f"{IS_RUN} AND parent IS NOT NULL"
IS_QUEUED = f"{IS_RUN} AND queue <> 'default'"
HAS_ERROR = f"{IS_RUN} AND error <> ''"
IS_ASKING = f"{IS_RUN} AND questions <> ''"
