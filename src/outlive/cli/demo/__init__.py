"""``outlive demo``: an agent is killed again and again, and refunds once.

Two agents get the same ticket, each in a world of its own: ``agent.py``, written with Outlive, and
``agent_plain.py``, the same without. Both are killed at the same moments (``kills.py``) and
started again until they end (``side.py``). What the bank's ledger says then is the verdict.

Nothing is imported here: the agents are modules of this package, and they start often.
"""

from __future__ import annotations


def main(argv: list[str]) -> int:
    """Show it; 0 only if the durable agent refunded and wrote once, and the plain one did not."""
    from outlive.cli.demo.show import run_show

    return run_show(argv)
