"""A run that was not to be begun with others, because a transaction that is open has its id.

In that case a store refuses the entry though no run is there: others in the batch must not wait for
somebody's transaction. Whoever wants the run asks again, by itself, until it is there or was begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from outlive.errors import RunIdTaken
from outlive.journal.lane import Lane
from outlive.store import Entry, Reading, Store

#: Pauses between two tries, which double; and how often it is tried: for about a minute.
_PAUSE_FIRST, _PAUSE_MAX = 0.02, 1.0
_TRIES_MAX = 65


async def find_or_begin(
    store: Store, lane: Lane, entry: Entry, read: Callable[[], Awaitable[Reading | None]]
) -> Reading | None:
    """The run whose first entry was refused; None: it belonged to one that was deleted.

    Raises:
        RunIdTaken: the transaction that has the id does not end.
    """
    pause = _PAUSE_FIRST
    for _ in range(_TRIES_MAX):
        found = await read()
        if found is not None:
            return found
        (answer,) = await lane(store.commit([entry]))
        if answer is not None and answer.gone:
            return None
        if answer is not None and answer.seq == 0:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX)
    raise RunIdTaken(entry.run_id, "a transaction that is still open has begun it")
