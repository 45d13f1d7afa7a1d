"""What gets due while a worker looks for work is not overlooked."""

from __future__ import annotations

import time

from outlive.stores.postgres import PostgresStore
from outlive.testing.store_entries import WANTED, parked

RUNS, LOOKS = 600, 150


async def test_what_gets_due_in_the_middle_of_a_look_is_told(url: str) -> None:
    """A look offers a run, or says to look again when the run gets due, if one a millisecond does.

    A worker that heard of neither would sleep until it looks for no reason.
    """
    store = PostgresStore(url)
    begin = time.time_ns() // 1_000_000
    times = {f"r{n}": begin + n for n in range(RUNS)}
    await store.commit([parked(run_id, at) for run_id, at in times.items()])

    for _ in range(LOOKS):
        claims = await store.claim("w", WANTED, RUNS)
        offered = {offer.head.run_id for offer in claims.offers}
        others = [at for run_id, at in times.items() if run_id not in offered]
        assert not others or (claims.next_at is not None and claims.next_at <= min(others))
    await store.close()
