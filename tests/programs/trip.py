"""A trip is booked piece by piece; if a piece can't be had, what was booked is given back.

python trip.py trip-1 Rome
"""

import asyncio
import json
import sys
from pathlib import Path

import outlive

BOOK = Path("bookings.jsonl")
AGENCY_SECONDS = 0.3
SOLD_OUT = ("Atlantis",)


def write(line: dict[str, str]) -> None:
    with BOOK.open("a") as book:
        book.write(json.dumps(line) + "\n")


def entries() -> list[dict[str, str]]:
    return [json.loads(line) for line in BOOK.read_text().splitlines()] if BOOK.exists() else []


def find_booking(key: str) -> object:
    found = [entry["what"] for entry in entries() if entry.get("booked") == key]
    return found[0] if found else outlive.NOT_HAPPENED


async def give_back(key: str, outcome: str) -> None:
    if not any(entry.get("given_back") == key for entry in entries()):
        write({"given_back": key, "what": outcome})


@outlive.effect(
    key="{kind}:{trip}", check=find_booking, undo=give_back, timeout="1s", settle_after="100ms"
)
async def book(kind: str, trip: str, place: str) -> str:
    if kind == "car" and place in SOLD_OUT:
        raise outlive.NotHappened(f"no {kind} is left in {place}")
    write({"booked": outlive.key(), "what": f"{kind} in {place}"})
    await asyncio.sleep(AGENCY_SECONDS)
    return f"{kind} in {place}"


@outlive.flow(deadline="1h")
async def travel(trip: str, place: str) -> list[str]:
    booked: list[str] = []
    for kind in ("flight", "hotel", "car"):
        booked.append(await book(kind, trip, place))
    return booked


if __name__ == "__main__":
    trip, place = sys.argv[1:]
    print(", ".join(outlive.run(travel, trip, place, id=trip)))
