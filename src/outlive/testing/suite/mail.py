"""What every store owes mail and nodes: once, and by family."""

from __future__ import annotations

from outlive.stores.seam import Store
from outlive.stores.types import Node, Posting, Reading
from outlive.testing.suite.entries import START_MS, WANTED, entry, header, held, post_one, takeover


class MailRules:
    """Post, and consume in a commit."""

    async def test_mail_waits_in_the_order_of_posting(self, store: Store) -> None:
        """Mail comes with the reading, with body and time, first posted first."""
        await store.commit([entry("r", 0)])

        answers = [await post_one(store, "r", mail_id, mail_id.encode()) for mail_id in ("b", "a")]

        reading = await reading_of(store, "r")
        assert ["posted", "posted"] == answers
        assert [("b", b"b", START_MS), ("a", b"a", START_MS)] == [
            (mail.mail_id, mail.body, mail.posted_at) for mail in reading.mail
        ]
        assert (2, 0) == (reading.head.posted, reading.head.consumed)

    async def test_mail_of_one_id_is_posted_once(self, store: Store) -> None:
        """The second is refused at the door, and the first stays as it was."""
        await store.commit([entry("r", 0)])
        await post_one(store, "r", "answer", b"yes")

        assert "already" == await post_one(store, "r", "answer", b"no")

        reading = await reading_of(store, "r")
        assert ([b"yes"], 1) == ([mail.body for mail in reading.mail], reading.head.posted)

    async def test_consumed_mail_is_gone_but_not_forgotten(self, store: Store) -> None:
        """A commit consumes mail; its id is refused for ever."""
        await store.commit([entry("r", 0)])
        await post_one(store, "r", "m1", b"1")
        await post_one(store, "r", "m2", b"2")

        await store.commit([entry("r", 1, consumed=("m1",))])

        reading = await reading_of(store, "r")
        assert (["m2"], 2, 1) == (
            [mail.mail_id for mail in reading.mail],
            reading.head.posted,
            reading.head.consumed,
        )
        assert "already" == await post_one(store, "r", "m1", b"again")

    async def test_only_what_changed_is_counted(self, store: Store) -> None:
        """Naming mail twice, or mail that never was, does not upset the counters."""
        await store.commit([entry("r", 0), entry("s", 0)])
        await post_one(store, "r", "m", b"")
        await post_one(store, "s", "m", b"")

        await store.commit([entry("r", 1, consumed=("m", "m", "never"))])
        await store.commit([entry("r", 2, consumed=("m",))])

        counters = [(await reading_of(store, run_id)).head for run_id in ("r", "s")]
        assert [(1, 1), (1, 0)] == [(head.posted, head.consumed) for head in counters]

    async def test_a_refused_entry_consumes_nothing(self, store: Store) -> None:
        """Mail belongs to who extends the journal."""
        await store.commit([held("r", "old")])
        await post_one(store, "r", "m", b"body")
        await store.commit([takeover("r", 1, "new", epoch=2)])

        await store.commit([entry("r", 2, b"zombie", epoch=1, consumed=("m",))])

        reading = await reading_of(store, "r")
        assert ([b"body"], 0) == ([mail.body for mail in reading.mail], reading.head.consumed)

    async def test_a_repeat_consumes_nothing_more(self, store: Store) -> None:
        """The counters are the same however often the commit is sent."""
        consuming = entry("r", 1, consumed=("m",))
        await store.commit([entry("r", 0)])
        await post_one(store, "r", "m", b"")
        await store.commit([consuming])
        await post_one(store, "r", "n", b"")

        assert [None] == list(await store.commit([consuming]))
        assert 1 == (await reading_of(store, "r")).head.consumed

    async def test_mail_for_nobody(self, store: Store) -> None:
        """There is no such run: unknown."""
        assert "unknown" == await post_one(store, "nobody", "m", b"")

    async def test_mail_for_an_ended_run(self, store: Store) -> None:
        """Nothing reaches a run that ended, but what reached it before did."""
        await store.commit([entry("r", 0)])
        await post_one(store, "r", "early", b"")
        await store.commit([entry("r", 1, header=header(status="done", ended_at=START_MS))])

        assert "ended" == await post_one(store, "r", "late", b"")
        assert "already" == await post_one(store, "r", "early", b"")

    async def test_mail_ids_belong_to_their_run(self, store: Store) -> None:
        """Two runs may get mail of the same id."""
        await store.commit([entry("r", 0), entry("s", 0)])

        assert ["posted"] * 2 == [await post_one(store, run_id, "m", b"") for run_id in "rs"]

    async def test_posting_wakes_a_run_that_parks_at_the_same_time(self, store: Store) -> None:
        """Mail that came before the commit that parks the run still makes it due."""
        await store.commit([held("r", "w")])
        await post_one(store, "r", "m", b"")

        await store.commit([entry("r", 1, lease="free", header=header(status="waiting"))])

        claims = await store.claim("other", WANTED, 10)
        assert ["r"] == [offer.head.run_id for offer in claims.offers]


class MailroomRules:
    """The same for much mail at once."""

    async def test_much_mail_is_posted_as_if_one_by_one(self, store: Store) -> None:
        """Each gets the answer that it would get alone, twins in one batch included."""
        done = header(status="done", ended_at=START_MS)
        await store.commit([entry("a", 0), entry("b", 0), entry("over", 0)])
        await store.commit([entry("over", 1, header=done)])
        await post_one(store, "a", "old", b"")
        letters = ["a old", "a new", "a new", "b new", "over new", "none new", "a newer"]
        named = [(*each.split(), each) for each in letters]

        answers = await store.post([Posting(run, mail, b.encode()) for run, mail, b in named])

        told = ["already", "posted", "already", "posted", "ended", "unknown", "posted"]
        assert told == list(answers)
        reading = await reading_of(store, "a")
        assert [b"", b"a new", b"a newer"] == [mail.body for mail in reading.mail]
        assert (3, 1) == (reading.head.posted, (await reading_of(store, "b")).head.posted)

    async def test_very_much_mail_is_posted(self, store: Store) -> None:
        """More than fits into one statement of any store."""
        await store.commit([entry(f"r{n}", 0) for n in range(60)])
        letters = [Posting(f"r{n % 60}", f"m{n}", b"%d" % n) for n in range(1500)]

        assert {"posted"} == set(await store.post(letters))
        assert {"already"} == set(await store.post(letters))

        found = await store.mail_of([f"r{n}" for n in range(60)])
        assert [b"%d" % n for n in range(7, 1500, 60)] == [mail.body for mail in found["r7"]]

    async def test_mail_of_many_runs(self, store: Store) -> None:
        """What waits, in order; nothing that was consumed, nothing of runs that are not there."""
        await store.commit([entry("a", 0), entry("b", 0)])
        for run_id, mail_id in (("b", "1"), ("a", "2"), ("b", "3"), ("b", "4")):
            await post_one(store, run_id, mail_id, mail_id.encode())
        await store.commit([entry("b", 1, consumed=("3",))])

        found = await store.mail_of(["a", "b", "none"])

        shown = {run_id: [mail.mail_id for mail in mails] for run_id, mails in found.items()}
        assert {"a": ["2"], "b": ["1", "4"], "none": []} == shown
        assert found["b"] == (await reading_of(store, "b")).mail


class NodeRules:
    """Nodes, by family and address."""

    async def test_nodes_travel_with_the_entry(self, store: Store) -> None:
        """What an entry brings along can be had from its family, and only from there."""
        node = Node(b"address-1", b"body")
        await store.commit([entry("r", 0, header=header(family="mine"), nodes=(node,))])
        await store.commit([entry("r", 1, nodes=(Node(b"address-2", b"more"),))])

        found = await store.get_blobs("mine", [b"address-1", b"missing", b"address-2"])

        assert {b"address-1": b"body", b"address-2": b"more"} == found
        assert {} == await store.get_blobs("yours", [b"address-1"])

    async def test_a_blob_is_kept_before_any_record_names_it(self, store: Store) -> None:
        """put_blob keeps; twice is fine; the first body stays."""
        await store.put_blob("f", Node(b"a", b"body"))
        await store.put_blob("f", Node(b"a", b"body"))
        await store.put_blob("g", Node(b"a", b"other"))

        assert {b"a": b"body"} == await store.get_blobs("f", [b"a"])
        assert {b"a": b"other"} == await store.get_blobs("g", [b"a"])

    async def test_dropped_blobs_are_gone(self, store: Store) -> None:
        """Only those, only in that family; what is gone may be dropped again and put anew."""
        for family in ("f", "g"):
            for address in (b"a", b"b", b"c"):
                await store.put_blob(family, Node(address, b"old"))

        await store.drop_blobs("f", [b"a", b"c", b"never there"])
        await store.drop_blobs("f", [b"a"])
        await store.drop_blobs("f", [])

        assert {b"b": b"old"} == await store.get_blobs("f", [b"a", b"b", b"c"])
        assert 3 == len(await store.get_blobs("g", [b"a", b"b", b"c"]))
        await store.put_blob("f", Node(b"a", b"new"))
        assert {b"a": b"new"} == await store.get_blobs("f", [b"a"])

    async def test_a_refused_entry_leaves_no_nodes(self, store: Store) -> None:
        """All or nothing means the nodes too."""
        await store.commit([entry("r", 0)])

        await store.commit([entry("r", 5, nodes=(Node(b"a", b"body"),))])

        assert {} == await store.get_blobs("family-1", [b"a"])

    async def test_many_blobs_at_once(self, store: Store) -> None:
        """Thousands of addresses are one call, and so is none."""
        nodes = tuple(Node(b"%d" % number, b"body %d" % number) for number in range(2_000))
        await store.commit([entry("r", 0, nodes=nodes)])

        found = await store.get_blobs("family-1", [node.address for node in nodes])

        assert {node.address: node.body for node in nodes} == found
        assert {} == await store.get_blobs("family-1", [])


async def reading_of(store: Store, run_id: str) -> Reading:
    """A run that must be there."""
    reading = await store.read(run_id)
    assert reading is not None
    return reading
