"""The nightly script: killed while it counts and while it mails, it mails once."""

from __future__ import annotations

from tests.examples.conftest import Desk
from tests.harness.processes import until

WORDS = ("python", "nightly.py", "2024-05-01")


def test_one_mail_a_day(desk: Desk) -> None:
    """However often it is started, and however it ends."""
    script = desk.start(*WORDS)
    until((desk.folder / "outlive.db").exists, "the script to begin")
    script.kill()
    script = desk.start(*WORDS)
    until(lambda: desk.lines("mails.jsonl"), "the mail")
    script.kill()

    assert ["2024-05-01: 2500\n"] * 2 == [desk(*WORDS), desk(*WORDS)]
    (mail,) = desk.lines("mails.jsonl")
    assert "sales:2024-05-01" == mail["key"]
    assert "Amsterdam: 900\nBerlin: 600\nCairo: 500\nDelhi: 500\ntotal: 2500" == mail["text"]
