"""How it went: the figures side by side, and whether they are as promised."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from outlive.cli.demo.kills import KILLS_MIN
from outlive.cli.demo.story import Tally

#: The rows that the show is about; they come last.
POINTS = ("mails sent", "refunds at the bank")
NONCE = re.compile(r"~[0-9a-f]{6}")


def incoherences(
    outcome: str,
    refunds: Sequence[dict[str, Any]],
    letters: Sequence[dict[str, Any]],
    journal: set[str],
) -> list[str]:
    """Whether answer, bank and letter speak of the same refund, and of what the journal keeps."""
    found = []
    sent = [*(entry["reason"] for entry in refunds), *(entry["letter"] for entry in letters)]
    unknown = {nonce for text in [outcome, *sent] for nonce in NONCE.findall(text)} - journal
    if unknown:
        found.append(f"answers went out that the journal does not have: {sorted(unknown)}")
    if not NONCE.search(outcome):
        found.append(f"the outcome is not the model's: {outcome!r}")
    for entry in refunds:
        if any(entry["number"] not in text for text in [outcome, *_texts(letters)]):
            found.append(f"refund {entry['number']} is not the one that was told")
    if any(entry["number"] not in outcome for entry in letters):
        found.append("the letter is not the one of the outcome")
    return found


def _texts(letters: Sequence[dict[str, Any]]) -> list[str]:
    return [entry["letter"] for entry in letters]


def failures(ours: Tally, plain: Tally) -> list[str]:
    """What is not as promised; nothing, if all went well."""
    checks = [
        (ours.kills >= max(KILLS_MIN, ours.kills_planned), f"{ours.kills} kills are too few"),
        (plain.kills >= plain.kills_planned, f"the plain agent died {plain.kills} times only"),
        (ours.refunds == 1, f"the bank refunded {ours.refunds} times"),
        (ours.mails == 1, f"{ours.mails} letters were sent"),
        (plain.refunds > 1, f"the plain agent refunded {plain.refunds} times: nothing was shown"),
    ]
    return [*(why for is_met, why in checks if not is_met), *ours.faults, *plain.faults]


def figures(ours: Tally, plain: Tally) -> list[tuple[str, str, str]]:
    """The rows of the table."""

    def row(name: str, field: str) -> tuple[str, str, str]:
        return name, _shown(getattr(ours, field)), _shown(getattr(plain, field))

    return [
        row("kills", "kills"),
        row("steps run", "steps_run"),
        row("steps replayed", "steps_replayed"),
        row("model calls made", "model_calls"),
        row("model calls saved", "model_calls_saved"),
        ("seconds", f"{ours.seconds:.1f}", f"{plain.seconds:.1f}"),
        row("mails sent", "mails"),
        row("refunds at the bank", "refunds"),
    ]


def _shown(figure: int | None) -> str:
    return "-" if figure is None else str(figure)


def render_table(ours: Tally, plain: Tally) -> Table:
    """The figures side by side."""
    table = Table(title_justify="left", border_style="dim", pad_edge=True)
    table.add_column("", style="bold")
    table.add_column(ours.title, justify="right", style="green", min_width=14)
    table.add_column(plain.title, justify="right", style="red", min_width=14)
    for name, left, right in figures(ours, plain):
        is_point = name in POINTS
        if name == POINTS[0]:
            table.add_section()
        table.add_row(name, left, right, style="bold" if is_point else None)
    return table


def verdict(ours: Tally, plain: Tally) -> str:
    """The sentence that remains."""
    wrong = failures(ours, plain)
    if wrong:
        return "[bold red]✘ not as promised:[/] " + "; ".join(wrong)
    return (
        f"[bold green]✔ killed {ours.kills} times, refunded once, wrote once.[/] "
        f"The plain agent refunded [bold red]{plain.refunds} times[/] "
        f"and wrote [bold red]{plain.mails} letters[/]."
    )
