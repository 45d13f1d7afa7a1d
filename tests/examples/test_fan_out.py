"""A thousand letters: killed in the middle, some fail, and only those are tried again."""

from __future__ import annotations

import json

from tests.examples.conftest import Desk
from tests.harness.processes import until

COUNT = 1000
BAD = ("r7", "r400", "r993")


def write_readers(desk: Desk, *bad: str) -> None:
    names = [f"r{number}" for number in range(COUNT)]
    addresses = {name: "" if name in bad else f"{name}@example.org" for name in names}
    (desk.folder / "readers.json").write_text(json.dumps(addresses))


def test_everybody_gets_one_letter(desk: Desk) -> None:
    """What failed is named, and sent after a retry; nothing is sent twice."""
    words = ("outlive", "run", "fan_out:newsletter", "--id", "may", "--input", '["may"]')
    write_readers(desk, *BAD)
    sending = desk.start(*words)
    until(lambda: len(desk.lines("outbox.jsonl")) > COUNT // 10, "some letters")
    sending.kill()
    assert len(desk.lines("outbox.jsonl")) < COUNT - len(BAD)

    told = desk(*words, code=1)
    assert "3 of 1000 not sent: r7 has no address; r400 has no address; r993 has" in told
    assert COUNT - len(BAD) == len(desk.lines("outbox.jsonl"))

    write_readers(desk)
    assert "what failed is tried again" in desk("outlive", "retry", "may")
    assert "sent 1000 letters\n" == desk("outlive", "resume", "may", "fan_out")
    keys = [letter["key"] for letter in desk.lines("outbox.jsonl")]
    assert sorted(f"may/r{number}" for number in range(COUNT)) == sorted(keys)
