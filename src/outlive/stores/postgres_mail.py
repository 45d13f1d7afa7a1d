"""Mail in PostgreSQL: posted and fetched for many runs in one round trip.

A posting carries a mark that nobody else has: if its answer was lost and it is sent again, it is
known for the same and not taken for a second letter of that id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from outlive.store import Mail, Posted, Posting
from outlive.stores.postgres_wire import Parameter, Row, blobs, int8, texts

_MARK_BYTES = 8
# In the order of the ids, so that two who post to the same runs wait for one another in one order.
POST_ALL = """
SELECT p.answer, p.holder FROM (
    SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::bytea[])
        WITH ORDINALITY AS g (run_id, mail_id, body, mark, place) ORDER BY g.place
) AS g CROSS JOIN LATERAL {s}.post_v2(g.run_id, g.mail_id, g.body, g.mark, $5) AS p
ORDER BY g.place
"""
MAIL_OF = """
SELECT m.run_id, m.mail_id, m.body, m.posted_at FROM {s}.mail m
WHERE m.run_id = ANY ($1) AND m.body IS NOT NULL ORDER BY m.number
"""

#: Sends a statement, answers with its rows.
Ask = Callable[..., list[Row]]


def post_all(
    ask: Ask, batch: Sequence[Posting], entropy: Callable[[int], bytes], now: int | None
) -> tuple[list[Posted], set[str | None]]:
    """How each was answered, and who holds the runs that got mail (None: nobody)."""
    order = sorted(range(len(batch)), key=lambda place: batch[place].run_id)
    sent = [batch[place] for place in order]
    parameters: list[Parameter] = [
        texts([each.run_id for each in sent]),
        texts([each.mail_id for each in sent]),
        blobs([each.body for each in sent]),
        blobs([entropy(_MARK_BYTES) for _ in sent]),
        int8(now),
    ]
    answered = dict(zip(order, ask(POST_ALL, *parameters), strict=True))
    answers = [cast(Posted, answered[place][0]) for place in range(len(batch))]
    return answers, {holder for answer, holder in answered.values() if answer == "posted"}


def mail_of(ask: Ask, run_ids: Sequence[str]) -> Mapping[str, Sequence[Mail]]:
    """What waits for each of these runs."""
    found: dict[str, list[Mail]] = {run_id: [] for run_id in run_ids}
    for run_id, mail_id, body, posted_at in ask(MAIL_OF, texts(run_ids)):
        found[run_id].append(Mail(mail_id=mail_id, body=body, posted_at=posted_at))
    return found
