"""Nothing that happens to a stored record goes unnoticed, and it is named by run and seq."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from itertools import combinations
from pathlib import Path

import pytest
import pytest_asyncio

from outlive.app.open import open_app
from outlive.errors import CorruptRecord
from outlive.journal.reader import read_events
from tests.acceptance.damage import RUNS, Bench, Spoiler, copy, write_journals
from tests.conftest import Figure

FLIPS_SAMPLED = 4000


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Journals as they should be."""
    path = tmp_path_factory.mktemp("journals") / "runs.db"
    asyncio.run(write_journals(path))
    return path


@pytest_asyncio.fixture
async def bench(written: Path, tmp_path: Path, figure: Figure) -> AsyncIterator[Bench]:
    """A copy of the journals, to be spoilt and looked at."""
    path = copy(written, tmp_path)
    spoiler = Spoiler(path)
    async with open_app(f"sqlite:///{path}", drive=False) as app:
        made = Bench(app, spoiler)
        assert [] == await made.look()
        yield made
    spoiler.close()


def flipped(body: bytes, bit: int) -> bytes:
    """The same with one bit changed."""
    return (int.from_bytes(body, "big") ^ 1 << bit).to_bytes(len(body), "big")


async def test_every_flipped_bit_is_found(bench: Bench, full: bool, figure: Figure) -> None:
    """Of one whole record; of all others a sample, or all in the full run. The driver's own
    reading refuses the journal at the same place."""
    seed = random.randrange(1 << 32)
    figure("verify, seed of the sampled bits", seed)
    rows = [(run_id, row) for run_id in RUNS for row in bench.spoiler.records(run_id)]
    whole = bench.spoiler.records("bought")[2]
    places = [("bought", whole, bit) for bit in range(8 * len(whole[3]))]
    others = [(run_id, row, bit) for run_id, row in rows for bit in range(8 * len(row[3]))]
    places += others if full else random.Random(seed).sample(others, FLIPS_SAMPLED)
    for run_id, (record, _, seq, body), bit in places:
        bench.spoiler.set_body(record, flipped(body, bit))
        await bench.expect(run_id, seq, only=run_id)
        with pytest.raises(CorruptRecord) as refused:
            read_events(await bench.app.read(run_id))
        bench.spoiler.set_body(record, body)

        assert (run_id, seq) == (refused.value.run_id, refused.value.seq)
    figure("verify, flipped bits found", f"{bench.found} of {bench.tried}")
    assert [] == await bench.look()


async def test_every_truncation_is_found(bench: Bench, full: bool, figure: Figure) -> None:
    """Cut at the end, at the beginning, or grown."""
    for record, _, seq, body in bench.spoiler.records("bought")[: None if full else 4]:
        cuts = [body[:size] for size in range(len(body))]
        others = [body[size:] for size in range(1, len(body), 7)]
        for changed in (*cuts, *others, body + b"\0", body * 2):
            bench.spoiler.set_body(record, changed)
            await bench.expect("bought", seq, only="bought")
        bench.spoiler.set_body(record, body)
    figure("verify, truncations found", f"{bench.found} of {bench.tried}")
    assert bench.tried > 0


async def test_every_swap_is_found(bench: Bench, figure: Figure) -> None:
    """Between two places of one run, and between the same places of two runs."""
    spoiler = bench.spoiler
    within = list(combinations(spoiler.records("counted"), 2))
    between = list(zip(spoiler.records("bought"), spoiler.records("counted"), strict=False))
    for one, other in within:
        spoiler.set_body(one[0], other[3])
        spoiler.set_body(other[0], one[3])
        await bench.expect("counted", one[2], only="counted")
        await bench.expect("counted", other[2], only="counted")
        spoiler.set_body(one[0], one[3])
        spoiler.set_body(other[0], other[3])
    for one, other in between:
        spoiler.set_body(one[0], other[3])
        spoiler.set_body(other[0], one[3])
        await bench.expect("bought", one[2], only="bought")
        await bench.expect("counted", other[2], only="counted")
        spoiler.set_body(one[0], one[3])
        spoiler.set_body(other[0], other[3])
    figure("verify, swaps found", f"{bench.found} of {bench.tried}")
    assert within
    assert between
    assert [] == await bench.look()


async def test_every_deletion_is_found(bench: Bench, figure: Figure) -> None:
    """Any record alone, any number from the end (also with the head's count), all of them."""
    spoiler = bench.spoiler
    records = spoiler.records("counted")
    for record, _, seq, _ in records:
        with spoiler.undone():
            spoiler.db.execute("DELETE FROM records WHERE id = ?", (record,))
            await bench.expect("counted", seq)
    for _, run, seq, _ in records:
        with spoiler.undone():
            spoiler.db.execute("DELETE FROM records WHERE run = ? AND seq >= ?", (run, seq))
            await bench.expect("counted", seq)
            spoiler.db.execute("UPDATE runs SET seq = ? WHERE id = ?", (seq - 1, run))
            # With no record at all it is the run's row that tells.
            await bench.expect("counted", seq - 1 or None)
    figure("verify, deletions found", f"{bench.found} of {bench.tried}")
    assert bench.tried > 0


async def test_every_reordering_is_found(bench: Bench, figure: Figure) -> None:
    """Records renumbered, moved up, moved to another run, or there twice."""
    spoiler = bench.spoiler
    records = spoiler.records("counted")
    for one, other in combinations(records, 2):
        with spoiler.undone():
            for record, seq in ((one[0], -1), (other[0], one[2]), (one[0], other[2])):
                spoiler.db.execute("UPDATE records SET seq = ? WHERE id = ?", (seq, record))
            await bench.expect("counted", one[2])
    for record, run, seq, _ in records:
        with spoiler.undone():
            spoiler.db.execute(
                "UPDATE records SET seq = -seq WHERE run = ? AND seq >= ?", (run, seq)
            )
            spoiler.db.execute("UPDATE records SET seq = 1 - seq WHERE run = ? AND seq < 0", (run,))
            await bench.expect("counted", seq)
        with spoiler.undone():
            place = records[-1][2] + 1
            spoiler.db.execute(
                "INSERT INTO records (run, seq, body)"
                " SELECT run, ?, body FROM records WHERE id = ?",
                (place, record),
            )
            await bench.expect("counted", place)
    with spoiler.undone():
        (bought,) = spoiler.db.execute("SELECT id FROM runs WHERE run_id = 'bought'").fetchone()
        last = spoiler.head("bought")
        spoiler.db.execute(
            "UPDATE records SET run = ?, seq = seq + 100 WHERE id = ?", (bought, records[3][0])
        )
        assert {("counted", records[3][2]), ("bought", last + 1)} <= {
            (each.run, each.seq) for each in await bench.look()
        }
    figure("verify, reorderings found", f"{bench.found} of {bench.tried}")


async def test_a_key_is_checked_too(bench: Bench) -> None:
    """Its journal is one like any other."""
    ((record, _, seq, body),) = bench.spoiler.records("key/refund:7")
    bench.spoiler.set_body(record, flipped(body, 77))

    await bench.expect("key/refund:7", seq)
    await bench.expect("key/refund:7", seq, only="key/refund:7")


@pytest.mark.parametrize(
    "change",
    [
        "status = 'completed', wake_at = NULL",
        "ended_at = 5",
        "wake_at = NULL",
        "flow = 'greet'",
        "version = '2'",
        "epoch = epoch + 1",
        "seq = seq + 1",
        "seq = seq - 1",
        "link = zeroblob(16)",
        "started_at = started_at + 1",
        "family = 'other'",
        "posted = posted + 1",
    ],
)
async def test_a_head_or_header_that_lies_is_found(bench: Bench, change: str) -> None:
    """Whoever asks the store about a run is told what its journal says."""
    bench.spoiler.db.execute(f"UPDATE runs SET {change} WHERE run_id = 'napping'")

    (damage,) = await bench.look()

    assert "napping" == damage.run
    assert damage.seq is not None


@pytest.mark.parametrize("change", ["tags = '{'", "seq = 'many'", "flow = x'00'"])
async def test_a_row_that_can_not_be_read_hides_no_other(bench: Bench, change: str) -> None:
    """It is named, and damage elsewhere is found as well."""
    record, _, seq, body = bench.spoiler.records("counted")[1]
    bench.spoiler.set_body(record, flipped(body, 3))
    bench.spoiler.db.execute(f"UPDATE runs SET {change} WHERE run_id = 'bought'")

    damage = await bench.look()

    assert {("bought", None), ("counted", seq)} == {(each.run, each.seq) for each in damage}


async def test_records_without_a_head_are_found(bench: Bench) -> None:
    """A head that is deleted leaves records behind."""
    bench.spoiler.db.execute("DELETE FROM runs WHERE run_id = 'bought'")

    (damage,) = await bench.look()

    assert None is damage.run
    assert "have no head" in damage.why


async def test_two_faults_in_one_journal_are_both_named(bench: Bench) -> None:
    """Behind a damaged record the others are still looked at."""
    records = bench.spoiler.records("counted")
    for record, _, _, body in (records[1], records[2], records[-2]):
        bench.spoiler.set_body(record, flipped(body, 8 * len(body) - 1 - 8 * 45))
    record, _, _, body = records[2]
    bench.spoiler.set_body(record, flipped(body, 0))

    places = [(each.run, each.seq) for each in await bench.look()]

    assert [("counted", records[at][2]) for at in (1, 2, -2)] == places


async def test_what_a_fork_and_a_deletion_leave_is_sound(bench: Bench) -> None:
    """The mark that keeps a forked run, and a key that outlives its own."""
    await bench.app.fork("counted", at=3, id="fork")
    assert await bench.app.delete("bought")

    assert [] == await bench.look()
    kept = (await bench.app.read("key/refund:7")).header
    assert ("kept", True) == (kept.status, kept.ended_at is not None)
    (mark,) = await marks_of(bench)
    for change in ("parent = NULL", "parent = 'greeted'", "status = 'held'", "ended_at = NULL"):
        with bench.spoiler.undone():
            bench.spoiler.db.execute(f"UPDATE runs SET {change} WHERE run_id = ?", (mark,))
            await bench.expect(mark, 1)


async def marks_of(bench: Bench) -> list[str]:
    """The journals of the marks of forks."""
    page = await bench.app.find(status="mark", keys=True)
    return [each.head.run_id for each in page.items]
