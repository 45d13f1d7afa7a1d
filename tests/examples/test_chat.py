"""The chat agent: killed between messages, it knows all of them, and its chapters stay short."""

from __future__ import annotations

import json

from tests.examples.conftest import Desk


def test_it_remembers_over_deaths_and_chapters(desk: Desk) -> None:
    """Forty-five messages in three processes are three chapters."""
    count = 0
    for _ in range(3):
        chat = desk.start("python", "chat.py", "ada")
        for _ in range(15):
            count += 1
            chat.type("hello" if count == 1 else f"more {count}")
            chat.says(f"That was message {count}. It all began with “hello”.")
        chat.kill()

    shown = json.loads(desk("outlive", "show", "chat-ada", "--json"))
    # It waits for the next message, in memory for a while: killed then, it counts as running.
    assert shown["status"] in ("running", "waiting"), shown
    assert 2 == sum(row["what"].startswith("chapter") for row in shown["timeline"])
