"""What every store owes its journals: order, the fence, repeats, and all or nothing per entry."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from outlive.stores.seam import Store
from outlive.stores.types import Conflict, Node, StoredRecord
from outlive.testing.suite.entries import entry, header, held, link_of, post_one, takeover

ODD_IDS = (
    "../../etc/passwd",
    "/absolute",
    "'; DROP TABLE runs; --",
    '"quoted"',
    "%_like_%",
    "a\nb\tc",
    "a\0b",
    "a\0c",
    "straße",
    "STRASSE",
    "\u212bngstrom",  # the Angstrom sign, which looks like the two below
    "\u00c5ngstrom",
    "A\u030angstrom",
    "\u0430dmin",  # begins with a Cyrillic letter
    "admin",
    "Admin",
    " admin",
    "admin ",
    "\U0001f680",
    "key/refund:7",
    "*",
    "{x}",
    "1",
    "01",
    "x" * 512,
)


class JournalRules:
    """Commit and read."""

    async def test_a_journal_comes_back_as_it_was_written(self, store: Store) -> None:
        """Records come back in order with the seq of their first event, and the head moved on."""
        first = entry("r", 0, b"one", last=3)
        second = entry("r", 3, b"two", last=4)

        answers = await store.commit([first])
        answers = [*answers, *await store.commit([second])]

        reading = await store.read("r")
        assert [None, None] == answers
        assert reading is not None
        assert [StoredRecord(1, b"one"), StoredRecord(4, b"two")] == list(reading.records)
        assert (4, 1, link_of(b"two")) == (
            reading.head.seq,
            reading.head.epoch,
            reading.head.link,
        )
        assert first.header == reading.header

    async def test_what_is_committed_together_is_there_together(self, store: Store) -> None:
        """New journals and known ones, with their headers and nodes; and the same again is done."""
        await store.commit([entry("old", 0)])
        node = Node(b"a" * 16, b"node")
        batch = [entry("b", 0, nodes=(node,)), entry("old", 1, header=header(tags={"t": "1"}))]
        for _ in range(2):
            assert [None, None] == list(await store.commit_together(batch))

        found = await store.read_all(["b", "old"])
        assert {"b": 1, "old": 2} == {name: each.head.seq for name, each in found.items()}
        assert {"t": "1"} == found["old"].header.tags
        assert {node.address: b"node"} == dict(await store.get_blobs("family-1", [node.address]))
        assert [] == list(await store.commit_together([]))

    async def test_one_conflict_refuses_all_that_is_committed_together(self, store: Store) -> None:
        """Nothing of the others is there: no journal, no record, no header, no node."""
        await store.commit([entry("late", 0), entry("old", 0)])
        await store.commit([entry("late", 1, b"somebody was faster")])
        node = Node(b"b" * 16, b"node")
        batch = [
            entry("new", 0, nodes=(node,)),
            entry("old", 1, header=header(status="changed")),
            entry("late", 1),
        ]
        answers = await store.commit_together(batch)

        assert [None, None, Conflict(seq=2, epoch=1)] == list(answers)
        found = await store.read_all(["new", "old", "late"])
        assert {"old": 1, "late": 2} == {name: each.head.seq for name, each in found.items()}
        assert "running" == found["old"].header.status
        assert {} == dict(await store.get_blobs("family-1", [node.address]))
        assert [None, None] == list(await store.commit_together(batch[:2]))

    async def test_a_driven_run_is_not_committed_together(self, store: Store) -> None:
        """Nor is a run twice: refused before anything is touched."""
        for batch in ([entry("a", 0), entry("a", 1)], [entry("b", 0), held("c", "w")]):
            with pytest.raises(ValueError, match="together"):
                await store.commit_together(batch)
        assert {} == dict(await store.read_all(["a", "b", "c"]))

    async def test_an_unknown_run_reads_as_none(self, store: Store) -> None:
        """There is no such run: None."""
        assert await store.read("nobody") is None

    async def test_an_empty_batch_is_fine(self, store: Store) -> None:
        """Nothing to do is done."""
        assert [] == list(await store.commit([]))

    async def test_a_reading_begins_after_a_seq(self, store: Store) -> None:
        """Only records whose first event comes after the given seq are read."""
        await store.commit([entry("r", 0, b"a", last=2)])
        await store.commit([entry("r", 2, b"b", last=5)])
        await store.commit([entry("r", 5, b"c")])

        for after, seqs in ((0, [1, 3, 6]), (1, [3, 6]), (2, [3, 6]), (3, [6]), (6, [])):
            reading = await store.read("r", after)
            assert reading is not None
            assert seqs == [record.seq for record in reading.records]

    async def test_a_stale_seq_is_refused(self, store: Store) -> None:
        """Of two writers that read the same journal, the later one is refused."""
        await store.commit([entry("r", 0)])
        await store.commit([entry("r", 1, b"mine")])

        answers = await store.commit([entry("r", 1, b"yours")])

        assert [Conflict(seq=2, epoch=1)] == list(answers)

    async def test_a_seq_in_the_future_is_refused(self, store: Store) -> None:
        """A journal has no gaps."""
        await store.commit([entry("r", 0)])

        assert [Conflict(seq=1, epoch=1)] == list(await store.commit([entry("r", 2)]))

    async def test_a_stale_epoch_is_refused(self, store: Store) -> None:
        """The seq alone does not open the fence."""
        await store.commit([held("r", "old")])
        await store.commit([takeover("r", 1, "new", epoch=2)])

        answers = await store.commit([entry("r", 2, b"zombie", epoch=1)])

        assert [Conflict(seq=2, epoch=2)] == list(answers)

    async def test_an_epoch_in_the_future_is_refused(self, store: Store) -> None:
        """Only taking the lease moves the epoch, and by one."""
        await store.commit([held("r", "old")])

        answers = await store.commit([entry("r", 1, epoch=2)])
        answers = [*answers, *await store.commit([takeover("r", 1, "new", epoch=3)])]

        assert [Conflict(seq=1, epoch=1)] * 2 == answers

    async def test_an_append_to_nothing_is_refused(self, store: Store) -> None:
        """A run begins with its first event."""
        assert [Conflict(seq=0, epoch=0)] == list(await store.commit([entry("r", 5)]))
        assert await store.read("r") is None

    async def test_a_run_is_created_once(self, store: Store) -> None:
        """The second creator is refused and changes nothing."""
        await store.commit([entry("r", 0, b"mine")])

        answers = await store.commit([entry("r", 0, b"yours", header=header(flow="other"))])

        reading = await store.read("r")
        assert [Conflict(seq=1, epoch=1)] == list(answers)
        assert reading is not None
        assert "support" == reading.header.flow
        assert [b"mine"] == [record.body for record in reading.records]

    async def test_a_shared_journal_is_created_in_epoch_zero(self, store: Store) -> None:
        """A journal that nobody drives has epoch 0, and only its seq decides."""
        await store.commit([entry("key/k", 0, epoch=0)])

        answers = await store.commit([entry("key/k", 1, epoch=0)])
        answers = [*answers, *await store.commit([entry("key/k", 1, b"late", epoch=0)])]

        assert [None, Conflict(seq=2, epoch=0)] == answers

    async def test_a_new_run_needs_a_header(self, store: Store) -> None:
        """A batch that would create a run with no header is refused before anything happens."""
        with pytest.raises(ValueError, match="header"):
            await store.commit([entry("a", 0), entry("b", 0, header=None)])

        assert await store.read("a") is None

    async def test_a_repeat_is_done_again(self, store: Store) -> None:
        """An entry that was done is done, however often it is sent, and changes nothing."""
        batch = [held("r", "w", record=b"first"), entry("r", 1, b"second")]
        await store.commit(batch)
        before = await store.read("r")

        answers = [*await store.commit(batch), *await store.commit(batch[1:])]

        assert [None] * 3 == answers
        assert before == await store.read("r")

    async def test_a_repeat_is_done_though_the_journal_went_on(self, store: Store) -> None:
        """A repeat may come late, as long as nobody took the run over."""
        first = entry("r", 0)
        await store.commit([first])
        await store.commit([entry("r", 1)])

        assert [None] == list(await store.commit([first]))

    async def test_a_repeat_after_takeover_is_refused(self, store: Store) -> None:
        """What was done in an older epoch is not acknowledged any more: the lease is lost."""
        late = entry("r", 1, b"late")
        await store.commit([held("r", "old")])
        await store.commit([late])
        await store.commit([takeover("r", 2, "new", epoch=2)])

        assert [Conflict(seq=3, epoch=2)] == list(await store.commit([late]))

    async def test_other_bytes_are_no_repeat(self, store: Store) -> None:
        """Same run, same seq, other record: refused."""
        await store.commit([entry("r", 0)])
        await store.commit([entry("r", 1, b"this")])

        assert [Conflict(seq=2, epoch=1)] == list(await store.commit([entry("r", 1, b"that")]))

    async def test_a_repeated_claim_is_done_for_its_worker_alone(self, store: Store) -> None:
        """Two workers can't both be told that they took the run, even with the same bytes."""
        await store.commit([held("r", "old")])
        mine = takeover("r", 1, "new", epoch=2)
        await store.commit([mine])
        same_bytes = entry(
            "r", 1, mine.record, last=mine.last, epoch=2, lease="take", worker="third"
        )

        assert [None] == list(await store.commit([mine]))
        assert [Conflict(seq=2, epoch=2)] == list(await store.commit([same_bytes]))

    async def test_a_conflict_does_not_disturb_its_neighbours(self, store: Store) -> None:
        """A refused entry writes nothing; those before and after it are done."""
        await store.commit([entry(run_id, 0) for run_id in "abc"])
        before = await store.read("b")

        answers = await store.commit(
            [
                entry("a", 1),
                entry("b", 7, b"no", header=header(status="no"), lease="free"),
                entry("new", 0),
                entry("c", 1),
            ]
        )

        assert [None, Conflict(seq=1, epoch=1), None, None] == list(answers)
        assert before == await store.read("b")
        assert [2, 1, 2] == [await seq_of(store, run_id) for run_id in ("a", "new", "c")]

    async def test_a_refused_entry_at_the_same_place_writes_nothing(self, store: Store) -> None:
        """Seq and epoch may be just those of the winner: header, nodes and mail stay away."""
        await store.commit([entry("key/k", 0, epoch=0)])
        await post_one(store, "key/k", "m", b"")
        await store.commit([entry("key/k", 1, b"winner", epoch=0)])
        before = await store.read("key/k")
        nodes = (Node(b"a", b"b"),)

        answers = await store.commit(
            [
                entry(
                    "key/k",
                    1,
                    b"loser",
                    epoch=0,
                    header=header(reason="x"),
                    nodes=nodes,
                    consumed=("m",),
                )
            ]
        )

        assert [Conflict(seq=2, epoch=0)] == list(answers)
        assert before == await store.read("key/k")
        assert {} == await store.get_blobs("family-1", [b"a"])

    async def test_plain_appends_do_not_disturb_one_another(self, store: Store) -> None:
        """The same holds for a batch of nothing but appends."""
        await store.commit([entry(f"r{number}", 0) for number in range(50)])

        answers = await store.commit(
            [entry(f"r{number}", 1 if number % 7 else 9) for number in range(50)]
        )

        refused = [number for number, answer in enumerate(answers) if answer is not None]
        assert list(range(0, 50, 7)) == refused
        assert [1 if number in refused else 2 for number in range(50)] == [
            await seq_of(store, f"r{number}") for number in range(50)
        ]

    async def test_entries_of_one_run_follow_one_another(self, store: Store) -> None:
        """A run may be created, driven and ended in one batch."""
        done = header(status="done", ended_at=5)

        answers = await store.commit(
            [
                held("r", "w"),
                entry("s", 0),
                entry("r", 1, last=4),
                entry("r", 4, header=done),
            ]
        )

        reading = await store.read("r")
        assert [None] * 4 == list(answers)
        assert reading is not None
        assert ([1, 2, 5], done) == ([r.seq for r in reading.records], reading.header)

    async def test_after_a_refused_entry_its_run_is_refused(self, store: Store) -> None:
        """An entry never lands on a journal that its predecessor did not extend."""
        await store.commit([entry("r", 0)])
        await store.commit([entry("r", 1, b"theirs", last=3)])

        answers = await store.commit([entry("r", 1, b"mine", last=3), entry("r", 3, b"next")])

        assert [Conflict(seq=3, epoch=1)] * 2 == list(answers)
        assert 3 == await seq_of(store, "r")

    async def test_a_header_stays_until_another_comes(self, store: Store) -> None:
        """None leaves the header as it is; a new one replaces it in every part."""
        full = header(
            status="waiting",
            wake_at=7,
            queue="q",
            parent="p",
            tags={"a": "1", "ü\"'": "{}"},
            reason="because",
        )
        await store.commit([entry("r", 0, header=full)])
        await store.commit([entry("r", 1)])
        reading = await store.read("r")
        assert reading is not None
        assert full == reading.header

        await store.commit([entry("r", 2, header=header(status="again"))])

        reading = await store.read("r")
        assert reading is not None
        assert header(status="again") == reading.header

    @pytest.mark.parametrize("run_id", ODD_IDS, ids=[f"id-{n}" for n in range(len(ODD_IDS))])
    async def test_an_id_is_opaque(self, store: Store, run_id: str) -> None:
        """Whatever an id looks like, it is that id and no other."""
        await store.commit([entry(other, 0, other.encode()) for other in ODD_IDS])
        await store.commit([entry(run_id, 1, b"more")])

        for other in ODD_IDS:
            reading = await store.read(other)
            assert reading is not None
            assert other == reading.head.run_id
            assert other.encode() == reading.records[0].body
            assert (2 if other == run_id else 1) == reading.head.seq

    async def test_ten_thousand_records_in_one_reading(self, store: Store) -> None:
        """A long journal is read at once, in order, in full."""
        await store.commit([entry("r", 0)])
        await store.commit([entry("r", seq, b"%d" % seq) for seq in range(1, 10_000)])

        reading = await store.read("r")

        assert reading is not None
        assert list(range(1, 10_001)) == [record.seq for record in reading.records]
        assert b"9999" == reading.records[-1].body

    async def test_a_batch_of_thousands(self, store: Store) -> None:
        """A batch has no limit that its caller must know."""
        ids = [f"r{number}" for number in range(2_500)]

        created = await store.commit([entry(run_id, 0) for run_id in ids])
        appended = await store.commit([entry(run_id, 1) for run_id in ids])

        assert [None] * 5_000 == [*created, *appended]
        assert 2 == await seq_of(store, ids[-1])

    async def test_a_record_of_a_megabyte_and_an_empty_one(self, store: Store) -> None:
        """Any bytes will do."""
        big = bytes(range(256)) * 4096
        await store.commit([entry("r", 0, big)])
        await store.commit([msgspec.structs.replace(entry("r", 1), record=b"", link=b"")])

        reading = await store.read("r")

        assert reading is not None
        assert [big, b""] == [record.body for record in reading.records]

    async def test_what_was_committed_is_there_after_reopening(
        self, store: Store, make_store: Callable[[], Store]
    ) -> None:
        """Another look at the same place finds the same journals."""
        await store.commit([held("r", "w"), entry("r", 1, b"x")])
        before = await store.read("r")

        again = make_store()

        assert before == await again.read("r")

    async def test_threads_share_a_store(self, store: Store) -> None:
        """Threads that append to their own runs at once lose nothing and mix nothing."""
        await store.commit([entry(f"r{number}", 0) for number in range(4)])

        def drive(number: int) -> list[Conflict | None]:
            return [drive_one(store, f"r{number}", seq) for seq in range(1, 51)]

        answers = await asyncio.gather(*(asyncio.to_thread(drive, n) for n in range(4)))

        assert [[None] * 50] * 4 == answers
        assert [51] * 4 == [await seq_of(store, f"r{number}") for number in range(4)]

    async def test_of_threads_that_race_one_wins(self, store: Store) -> None:
        """All append to one journal after the same seq: exactly one is told that it did."""
        await store.commit([entry("r", 0)])

        def race(number: int, seq: int) -> bool:
            return drive_one(store, "r", seq, b"by %d" % number) is None

        for seq in range(1, 11):
            won = await asyncio.gather(*(asyncio.to_thread(race, n, seq) for n in range(4)))
            assert 1 == sum(won)


def drive_one(store: Store, run_id: str, after: int, record: bytes = b"") -> Conflict | None:
    """Commit one entry from a plain thread."""
    return asyncio.run(commit_one(store, run_id, after, record))


async def commit_one(store: Store, run_id: str, after: int, record: bytes) -> Conflict | None:
    """Commit one entry."""
    (answer,) = await store.commit([entry(run_id, after, record)])
    return answer


async def seq_of(store: Store, run_id: str) -> int:
    """Where a journal ends."""
    reading = await store.read(run_id)
    assert reading is not None
    return reading.head.seq
