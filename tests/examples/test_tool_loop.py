"""The agent with tools and approvals, killed while it waits and while the bank replies."""

from __future__ import annotations

import json

from tests.examples.conftest import Desk, Program
from tests.harness.processes import until

QUESTION = json.dumps(["I was charged twice for order 7"])


def support(desk: Desk) -> Program:
    return desk.start("outlive", "run", "tool_loop:support", "--id", "t", "--input", QUESTION)


def test_one_refund_and_one_approval(desk: Desk) -> None:
    """It asks again after the first death, and does not pay again after the second."""
    agent = support(desk)
    agent.says("run t (flow support) asks: Approve refund(order='7', cents=1999)?")
    agent.kill()

    agent = support(desk)
    agent.says("outlive answer t yes")
    assert "noted: run t: 0/approve#1: true" in desk("outlive", "answer", "t", "yes", "--by", "ann")
    until(lambda: desk.lines("bank.jsonl"), "the bank to book it")
    agent.kill()

    said = support(desk).end()
    assert "Dear customer, refund: 1999 cents were given back for order 7." in said
    assert ["refund:7"] == [entry["key"] for entry in desk.lines("bank.jsonl")]
    assert "by ann" in desk("outlive", "show", "t")


def test_a_no_is_told_to_the_model(desk: Desk) -> None:
    """With the note; nothing is paid."""
    agent = support(desk)
    agent.says("asks: Approve refund")
    said = json.dumps({"granted": False, "note": "too old"})
    desk("outlive", "answer", "t", said, "--by", "ann")

    assert "Dear customer, refund: ann said no: too old." in agent.end()
    assert [] == desk.lines("bank.jsonl")
