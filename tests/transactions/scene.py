"""The trip as a scene that is killed everywhere; at its end it looks at what was booked."""

from __future__ import annotations

import os

from outlive.testing.audit.auditor import Receipt
from outlive.testing.crash.child import Stage
from outlive.testing.crash.points import url_of
from tests.harness.places import place_of
from tests.transactions.booking import Here, booked, expected, trip

#: The variable that names the server, if the trials are on one.
SERVER = "TRIP_SERVER"


async def scene(stage: Stage) -> object:
    place = Here.place = place_of(url_of(stage.folder, os.environ.get(SERVER)))
    outcome = await (await stage.app.start(trip, "t", id="t")).outcome()
    assert expected(["t"]) == booked(place), f"booked: {place.rows()}"
    for row in place.rows():
        what, _, key = row.partition(" ")
        effect = "book" if what in ("t/flight", "t/room") else "book_plainly"
        receipt = Receipt(run_id="t", effect=effect, key=key, nonces=())
        stage.ledger.enter(receipt, honours_key=True)
    return outcome
