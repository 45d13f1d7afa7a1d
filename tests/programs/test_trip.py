"""The trip that is given back if a piece is missing: killed, and failing in ordinary ways."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.harness.processes import until
from tests.programs.conftest import Failure, Shell

ROME = ("python", "trip.py", "trip-1", "Rome")
ATLANTIS = ("python", "trip.py", "trip-1", "Atlantis")
BOOKED = "flight in Rome, hotel in Rome, car in Rome\n"


def booked(shell: Shell) -> list[str]:
    return [line["booked"] for line in shell.lines("bookings.jsonl") if "booked" in line]


def given_back(shell: Shell) -> list[str]:
    return [line["given_back"] for line in shell.lines("bookings.jsonl") if "given_back" in line]


def test_it_goes_on_after_a_kill(shell: Shell) -> None:
    """Killed between the booking and its reply: it is found by its key, not booked again."""
    trip = shell.start(*ROME)
    until(lambda: len(booked(shell)) == 2, "the hotel")
    trip.kill()

    assert BOOKED == shell(*ROME)
    assert ["flight:trip-1", "hotel:trip-1", "car:trip-1"] == booked(shell)


def test_it_is_given_back_after_a_kill(shell: Shell) -> None:
    """Killed while it gives back: each piece is given back once, the last first."""
    shell.edit(
        "trip.py", ('write({"given_back"', 'await asyncio.sleep(0.3)\n        write({"given_back"')
    )
    trip = shell.start(*ATLANTIS)
    until(lambda: given_back(shell), "the hotel to be given back")
    trip.kill()

    said = shell.start(*ATLANTIS).end(1)
    assert "run trip-1 failed: NotHappened: no car is left in Atlantis" in said
    assert ["hotel:trip-1", "flight:trip-1"] == given_back(shell)


UNDO = '@outlive.effect(doubt="retry", retry=outlive.Retry(attempts=2, delay="10ms"))'

FAILURES = [
    Failure(
        name="a piece that is sold out",
        sees=("run trip-1 failed: NotHappened: no car is left in Atlantis", "in book", "in travel"),
    ),
    Failure(
        name="an agency that replies too late",
        edits=(('timeout="1s"', 'timeout="100ms"'),),
        sees=("no car is left in Atlantis",),
    ),
    Failure(
        name="an undo that fails for good",
        edits=(
            ("    if not any(", '    raise OSError("the line is dead")\n    if not any('),
            ("async def give_back", f"{UNDO}\nasync def give_back"),
        ),
        sees=("no car is left in Atlantis", "0/book#2", "the line is dead"),
    ),
    Failure(
        name="a key that names no argument",
        edits=(('key="{kind}:{trip}"', 'key="{knid}:{trip}"'),),
        sees=("names 'knid', which is no argument of it; it has kind, trip, place",),
        status="",
    ),
    Failure(
        name="an undo that wants something else",
        edits=(("give_back(key: str,", "give_back(booking: str, key: str,"),),
        sees=("book: its undo wants 'booking', which is not given to it; it can have kind,",),
        status="",
    ),
    Failure(
        name="a misspelt option",
        edits=(("undo=give_back", "undoo=give_back"),),
        sees=("@outlive.effect has no option 'undoo'; did you mean undo?",),
        status="",
    ),
    Failure(
        name="a deadline that passes",
        edits=(('deadline="1h"', 'deadline="400ms"'),),
        sees=("run trip-1 failed", "deadline"),
    ),
    Failure(
        name="an error that is caught hides nothing",
        edits=(
            ("        booked.append(await book(kind, trip, place))",
             "        try:\n            booked.append(await asyncio.to_thread(len, kind))\n"
             "        except Exception:\n            pass"),
        ),
        sees=("run trip-1 failed: IoInFlow", "@outlive.step", "in travel"),
    ),
    Failure(
        name="a wrong number of arguments",
        edits=(("await book(kind, trip, place)", "await book(kind, trip)"),),
        sees=("TypeError", "missing", "'place'", "in travel"),
    ),
    Failure(
        name="a forgotten await",
        edits=(("await book(kind, trip, place)", "book(kind, trip, place)"),),
        sees=("book was called and never awaited", "write `await book(...)`"),
    ),
]  # fmt: skip


@pytest.mark.parametrize("failure", FAILURES, ids=str)
def test_a_failure_is_told(shell: Shell, failure: Failure) -> None:
    """And whatever was booked is given back, unless that is what failed."""
    shell.edit("trip.py", *failure.edits)

    said = shell.start(*ATLANTIS).end(failure.exit_code)

    assert [] == [text for text in failure.sees if text not in said], said
    if failure.status:
        assert failure.status == shell.status("trip-1")
    if "undo" not in failure.name:
        assert booked(shell) == given_back(shell)[::-1]


def test_a_check_that_raises_is_told(shell: Shell) -> None:
    """At once, with its error; the doubt stays until it can be settled."""
    shell.edit(
        "trip.py",
        ("    found = [", '    raise OSError("the agency is closed")\n    found = ['),
        ("    await asyncio.sleep(AGENCY_SECONDS)", '    raise ConnectionResetError("hung up")'),
    )
    trip = shell.start(*ROME)

    said = trip.says("the agency is closed")
    assert "run trip-1" in said
    assert "0/book#1" in said
    assert "find_booking" in said
    trip.kill()


def test_a_doubt_without_a_check_is_told_while_it_waits(shell: Shell) -> None:
    """Settled as not happened, the run fails or goes on; here it books again."""
    shell.edit(
        "trip.py",
        ("check=find_booking, ", ""),
        ("    await asyncio.sleep(AGENCY_SECONDS)", '    raise ConnectionResetError("hung up")'),
    )
    trip = shell.start(*ROME)

    said = trip.says("outlive resolve trip-1 '0/book#1'")
    assert "ConnectionResetError: hung up" in said
    assert "in_doubt" == shell.status("trip-1")
    shell("outlive", "resolve", "trip-1", "0/book#1", "--fail")
    said = trip.end(1)
    assert "run trip-1 failed" in said


def test_cancelled_it_is_given_back(shell: Shell) -> None:
    """Who waits for it is told."""
    shell.edit("trip.py", ("AGENCY_SECONDS = 0.3", "AGENCY_SECONDS = 0.9"))
    trip = shell.start(*ROME)
    until(lambda: booked(shell), "the flight")

    shell("outlive", "cancel", "trip-1", "--by", "ann")
    assert "RunCancelled: run trip-1 was cancelled" in trip.end(1)
    assert booked(shell) == given_back(shell)[::-1]
    assert "cancelled" == shell.status("trip-1")


def test_other_arguments_after_a_change_are_shown(shell: Shell) -> None:
    """Line by line, what is recorded and what the code asks for."""
    trip = shell.start(*ROME)
    until(lambda: len(booked(shell)) == 2, "the hotel")
    trip.kill()
    shell.edit(
        "trip.py", ("await book(kind, trip, place)", "await book(kind, trip, place.upper())")
    )

    said = shell.start(*ROME).end(1)
    assert "place='Rome'" in said
    assert "place='ROME'" in said
    shown: dict[str, Any] = shell.show("trip-1")
    assert "waiting" == shown["status"]
    assert shown["reason"].startswith("mismatch: ")
    assert "mismatch: " in shell("outlive", "runs")
    assert "trip-1" in shell("outlive", "doctor", code=1)


def test_control_c_in_an_effect_names_it(shell: Shell) -> None:
    """Started again, it asks the agency and goes on."""
    shell.edit("trip.py", ("AGENCY_SECONDS = 0.3", "AGENCY_SECONDS = 0.9"))
    trip = shell.start(*ROME)
    until(lambda: booked(shell), "the flight")
    trip.process.send_signal(signal.SIGINT)

    said = trip.end(-signal.SIGINT)
    assert "0/book#1" in said.splitlines()[-1]
    assert BOOKED == shell(*ROME)
    assert 3 == len(booked(shell))
