"""A nightly script, for cron: plain functions, no async, no server.

    python nightly.py 2024-05-01

It adds up the day's sales of every shop and mails the sum. If the machine goes down in the
middle, the next start goes on from there; a second start on the same day mails nothing.
"""

import json
import sys
import time
from datetime import date
from pathlib import Path

from outlive import sync as outlive

MAILS = Path("mails.jsonl")
SHOPS = ["Amsterdam", "Berlin", "Cairo", "Delhi"]


@outlive.step(retry=outlive.Retry(attempts=5, delay="10s"), timeout="5m")
def sales(shop: str) -> int:
    """A pretend cash register, which takes its time."""
    time.sleep(0.2)
    return 100 * len(shop)


def find_mail(key: str) -> object:
    """Ask the mail server what it sent."""
    sent = MAILS.read_text().splitlines() if MAILS.exists() else []
    return None if any(json.loads(line)["key"] == key for line in sent) else outlive.NOT_HAPPENED


@outlive.effect(key="sales:{day}", check=find_mail)
def mail(day: str, text: str) -> None:
    """A pretend mail server: it sends at once and takes its time to reply."""
    with MAILS.open("a") as sent:
        sent.write(json.dumps({"key": outlive.key(), "text": text}) + "\n")
    time.sleep(2)


@outlive.flow
def nightly(day: str) -> str:
    """Add up and tell."""
    counts = outlive.map(sales, SHOPS, limit=2)
    lines = [
        f"{shop}: {count.value if count.ok else count.error}"
        for shop, count in zip(SHOPS, counts, strict=True)
    ]
    total = sum(count.value for count in counts if count.ok)
    mail(day, "\n".join([*lines, f"total: {total}"]))
    return f"{day}: {total}"


if __name__ == "__main__":
    day = sys.argv[1] if len(sys.argv) > 1 else str(date.today())
    print(outlive.run(nightly, day, id=f"nightly-{day}"))
