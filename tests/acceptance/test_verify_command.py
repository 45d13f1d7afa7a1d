"""``outlive verify`` in real processes, and how everybody else behaves beside a damaged run."""

from __future__ import annotations

import asyncio
import contextlib
import io
import random
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outlive.app.open import open_app
from outlive.cli import main
from outlive.errors import StoreError
from tests.acceptance.conftest import SECONDS_MAX, Cli
from tests.acceptance.damage import Spoiler, copy, write_journals
from tests.conftest import Figure

FILE_FLIPS = 150


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Journals as they should be."""
    path = tmp_path_factory.mktemp("journals") / "runs.db"
    asyncio.run(write_journals(path))
    return path


@pytest.fixture
def spoiler(written: Path, cli: Cli) -> Spoiler:
    """The journals in the command line's own folder, opened behind its back."""
    cli.database = copy(written, cli.folder)
    cli.environment["OUTLIVE_STORE"] = f"sqlite:///{cli.database}"
    return Spoiler(cli.database)


def flip(spoiler: Spoiler) -> int:
    record, _, seq, body = spoiler.records("counted")[4]
    spoiler.set_body(record, bytes((body[0] ^ 1,)) + body[1:])
    return seq


def cut(spoiler: Spoiler) -> int:
    record, _, seq, body = spoiler.records("counted")[4]
    spoiler.set_body(record, body[:-1])
    return seq


def swap(spoiler: Spoiler) -> int:
    one, other = spoiler.records("counted")[4:6]
    spoiler.set_body(one[0], other[3])
    spoiler.set_body(other[0], one[3])
    return one[2]


def delete(spoiler: Spoiler) -> int:
    record, _, seq, _ = spoiler.records("counted")[4]
    spoiler.db.execute("DELETE FROM records WHERE id = ?", (record,))
    return seq


def cut_tail(spoiler: Spoiler) -> int:
    record, _, seq, _ = spoiler.records("counted")[-1]
    spoiler.db.execute("DELETE FROM records WHERE id = ?", (record,))
    return seq


def test_a_sound_store_is_said_to_be_sound(cli: Cli, spoiler: Spoiler) -> None:
    """Exit code 0, with the counts of what was looked at; nothing is changed."""
    spoiler.close()
    before = cli.rows()

    text, data = cli("verify"), cli("verify", "--json")
    one = cli("verify", "bought")

    assert (0, 0, 0) == (text.code, data.code, one.code)
    (runs,) = [rows for table, rows in before if table == "runs"]
    (records,) = [rows for table, rows in before if table == "records"]
    assert f"journals: {len(runs)}, records: {len(records)}; all sound\n" == text.out
    assert {"journals": len(runs), "records": len(records), "damage": []} == data.json
    assert one.out.startswith("journals: 1, ")
    assert before == cli.rows()


@pytest.mark.parametrize("spoil", [flip, cut, swap, delete, cut_tail])
def test_damage_is_named(cli: Cli, spoiler: Spoiler, spoil: Callable[[Spoiler], int]) -> None:
    """Run and seq, exit code 3, nothing changed, and other runs are sound when asked alone."""
    seq = spoil(spoiler)
    spoiler.close()
    before = cli.rows()

    text, data = cli("verify"), cli("verify", "--json")
    other, one = cli("verify", "bought"), cli("verify", "counted")

    assert (3, 3, 0, 3) == (text.code, data.code, other.code, one.code)
    assert text.out.startswith(f"run counted, seq {seq}: ")
    assert text.out.endswith("damage found\n")
    assert ("counted", seq) == (data.json["damage"][0]["run"], data.json["damage"][0]["seq"])
    assert "" == text.err + data.err
    assert before == cli.rows()


def test_a_damaged_run_is_refused_and_the_others_go_on(cli: Cli, spoiler: Spoiler) -> None:
    """``run``, ``resume`` and ``show`` say so, with exit code 3; other runs are driven."""
    seq = flip(spoiler)
    spoiler.close()

    refused = cli("run", "shop:count", "--id", "counted", "--input", "[12]")
    resumed = cli("resume", "counted", "shop")
    shown = cli("show", "counted")
    again = cli("run", "shop:buy", "--id", "bought", "--input", '[{"id": "7", "cents": 5}]')
    fresh = cli("run", "shop:greet", "--id", "new")

    assert (3, 3, 3) == (refused.code, resumed.code, shown.code)
    assert refused.err.startswith(f"outlive: run counted, seq {seq}: ")
    assert "`outlive verify` lists all damage" in refused.err
    assert refused.err == resumed.err
    assert f"\n{seq - 1} " in shown.out
    assert f"run counted, seq {seq}: " in shown.err
    assert (0, '{"order":"7","cents":5}\n') == (again.code, again.out)
    assert (0, "hello you\n") == (fresh.code, fresh.out)


def test_mail_that_can_not_be_read_stops_nobody(cli: Cli, spoiler: Spoiler) -> None:
    """It is found by verify, noted in the journal by whoever drives the run, and that is all."""
    (run,) = spoiler.db.execute("SELECT id FROM runs WHERE run_id = 'pending'").fetchone()
    spoiler.db.execute(
        "INSERT INTO mail (run, mail_id, posted_at, body) VALUES (?, 'm', 0, x'c1')", (run,)
    )
    spoiler.db.execute("UPDATE runs SET posted = 1 WHERE id = ?", (run,))
    spoiler.close()

    checked = cli("verify")
    ran = cli("resume", "pending", "shop")
    timeline = cli("show", "pending", "--json").json["timeline"]

    assert 3 == checked.code
    assert checked.out.startswith("run pending, seq 1: mail 'm' can't be read")
    assert (0, "hello Bob\n") == (ran.code, ran.out)
    assert any("can't be read" in row["note"] for row in timeline)
    again = cli("verify")
    assert 3 == again.code
    assert "mail 'm' was kept aside" in again.out


def test_a_worker_reports_a_damaged_run_and_ends_the_others(cli: Cli, spoiler: Spoiler) -> None:
    """Damage to one run costs nobody else anything."""
    record, _, seq, body = spoiler.records("napping")[0]
    spoiler.set_body(record, bytes((body[0] ^ 1,)) + body[1:])
    spoiler.db.execute("UPDATE runs SET wake_at = 0 WHERE run_id = 'napping'")
    spoiler.close()

    worker = cli.start_worker()
    assert worker.stderr is not None
    told = next(line for line in worker.stderr if " started" not in line)
    pending = cli("resume", "pending", "shop")
    worker.send_signal(signal.SIGTERM)
    worker.communicate()

    assert told.startswith(f"outlive: run napping, seq {seq}: ")
    assert (0, "hello Bob\n") == (pending.code, pending.out)
    assert 0 == worker.returncode
    assert {"napping"} == {each["run"] for each in cli("verify", "--json").json["damage"]}


def test_a_damaged_key_is_told_to_whoever_needs_it(cli: Cli, spoiler: Spoiler) -> None:
    """The effect waits, rather than being attempted with a key that may be another's."""
    ((record, _, seq, body),) = spoiler.records("key/refund:7")
    spoiler.set_body(record, body[:-1] + bytes((body[-1] ^ 1,)))

    waiting = cli.start("run", "shop:buy", "--id", "b", "--input", '[{"id": "7", "cents": 5}]')
    assert waiting.stderr is not None
    told = waiting.stderr.readline()
    spoiler.set_body(record, body)
    spoiler.close()
    out, _ = waiting.communicate(timeout=SECONDS_MAX)

    assert told.startswith(
        f"outlive: effect 0/refund#1 of run b waits: run key/refund:7, seq {seq}"
    )
    assert (0, '{"order":"7","cents":5}\n') == (waiting.returncode, out)
    assert not (cli.folder / "ledger").exists()


Seen = dict[str, tuple[Any, Any, Any]]


async def read_all(path: Path) -> Seen:
    """All that matters of every run: its head, its header, its records."""
    found: Seen = {}
    async with open_app(f"sqlite:///{path}", drive=False) as app:
        for each in (await app.find(limit=1000, keys=True)).items:
            reading = await app.read(each.head.run_id)
            head = (reading.head.seq, reading.head.epoch, reading.head.link)
            found[each.head.run_id] = (head, reading.header, list(reading.records))
    return found


def seen_or_none(path: Path) -> Seen | None:
    try:
        return asyncio.run(read_all(path))
    except (StoreError, sqlite3.Error):
        return None


def verify_here(path: Path) -> tuple[int, str, str]:
    """The command in this process: exit code, output, errors."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["verify", "--store", f"sqlite:///{path}"])
    return code, out.getvalue(), err.getvalue()


def test_bits_of_the_file_itself(written: Path, tmp_path: Path, full: bool, figure: Figure) -> None:
    """Wherever the file is hit: either nothing that is read has changed, or verify says so."""
    sound = asyncio.run(read_all(written))
    seed = random.randrange(1 << 32)
    figure("verify, seed of the flipped bits of the file", seed)
    chance = random.Random(seed)
    # Most of a small file is empty pages; what is written is worth more tries.
    places = [place for place, byte in enumerate(written.read_bytes()) if byte]
    found = harmless = 0
    for _ in range(FILE_FLIPS * (20 if full else 1)):
        path = copy(written, tmp_path)
        place, bit = chance.choice(places), chance.randrange(8)
        raw = bytearray(path.read_bytes())
        raw[place] ^= 1 << bit
        path.write_bytes(raw)

        code, out, err = verify_here(path)

        assert code in (0, 3), f"byte {place}, bit {bit}: {out}{err}"
        assert "unexpected" not in err
        found += code == 3
        harmless += code == 0
        if code == 0:
            assert sound == seen_or_none(path), f"byte {place}, bit {bit}: {out}"
    figure("verify, bits of the file", f"{found} found, {harmless} without effect")
    assert found
