"""What every store owes those who look: pages that miss nothing, and the truth about itself."""

from __future__ import annotations

import pytest

from outlive.errors import UsageError
from outlive.stores.seam import Store
from outlive.stores.types import LAST_CHAPTER, Query
from outlive.testing.suite.entries import START_MS, delete_one, entry, header, post_one


class FindingRules:
    """Find, health, close."""

    async def test_runs_are_found_in_the_order_of_creation(self, store: Store) -> None:
        """With head and header; later commits do not move them."""
        await store.commit([entry(run_id, 0) for run_id in ("b", "a", "c")])
        await store.commit([entry("b", 1)])

        page = await store.find(Query())

        reading = await store.read("b")
        assert reading is not None
        assert (["b", "a", "c"], None) == ([found.head.run_id for found in page.items], page.next)
        assert (reading.head, reading.header) == (page.items[0].head, page.items[0].header)

    async def test_a_reading_may_be_short(self, store: Store) -> None:
        """So many records at most, the first ones; head, header and mail are there all the same."""
        await store.commit([entry("r", 0)])
        for seq in (1, 2, 3):
            await store.commit([entry("r", seq)])
        await post_one(store, "r", "m", b"mail")
        whole = await store.read("r")
        assert whole is not None

        for after, limit in ((0, 0), (0, 1), (1, 2), (2, 9), (LAST_CHAPTER, 1)):
            some = await store.read("r", after, limit=limit)
            assert some is not None
            first = max(after, 0)
            assert list(whole.records[first:][:limit]) == list(some.records)
            assert (whole.head, whole.header) == (some.head, some.header)
            assert list(whole.mail) == list(some.mail)

    async def test_pages_are_stable(self, store: Store) -> None:
        """Runs that come, go on and go while one pages: none is seen twice, none is missed."""
        await store.commit([entry(f"r{number:02}", 0) for number in range(20)])
        seen: list[str] = []
        after = None
        for turn in range(100):
            page = await store.find(Query(), after, limit=3)
            seen += [found.head.run_id for found in page.items]
            if page.next is None:
                break
            after = page.next
            await store.commit([entry("r00", turn + 1), entry(f"new{turn}", 0)])
            if turn == 1:  # newest and already seen: their numbers must not be given again
                for run_id in ("new1", "r03"):
                    done = header(status="done", ended_at=START_MS)
                    await store.commit([entry(run_id, 1, header=done)])
                    assert await delete_one(store, run_id, seq=2, digest=b"", keep_until=0)

        assert len(seen) == len(set(seen))
        assert {f"r{number:02}" for number in range(20)} <= set(seen)
        assert {"new0", "new2", "new3"} <= set(seen)

    async def test_no_number_is_given_twice(self, store: Store) -> None:
        """A run that comes after the newest ones went is not taken for one already seen."""
        await store.commit([entry(run_id, 0) for run_id in "abc"])
        first = await store.find(Query(), limit=2)
        for run_id in "bc":
            done = header(status="done", ended_at=START_MS)
            await store.commit([entry(run_id, 1, header=done)])
            assert await delete_one(store, run_id, seq=2, digest=b"", keep_until=0)
        await store.commit([entry("d", 0)])

        second = await store.find(Query(), first.next)

        assert ["d"] == [found.head.run_id for found in second.items]

    async def test_what_ended_by_an_instant_is_found(self, store: Store) -> None:
        """At that instant or before; what is under way is not."""
        await store.commit([entry(run_id, 0) for run_id in "abcd"])
        for run_id, ended_at in (("a", START_MS), ("c", START_MS + 5), ("d", START_MS + 6)):
            done = header(status="done", ended_at=ended_at)
            await store.commit([entry(run_id, 1, header=done)])

        page = await store.find(Query(ended_by=START_MS + 5))

        assert ["a", "c"] == [found.head.run_id for found in page.items]

    async def test_an_exact_page_has_no_next(self, store: Store) -> None:
        """The last page says so, even when it is full."""
        await store.commit([entry(run_id, 0) for run_id in "abcd"])

        first = await store.find(Query(), limit=2)
        second = await store.find(Query(), first.next, limit=2)

        assert ["c", "d"] == [found.head.run_id for found in second.items]
        assert second.next is None

    async def test_a_query_narrows(self, store: Store) -> None:
        """By status, flow, tag, prefix, and by all of them at once."""
        tags = {"team": "blue", 'o"dd\\': "v:,{}"}
        await store.commit(
            [
                entry("1", 0, header=header(status="done")),
                entry("2", 0, header=header(flow="other", tags=tags)),
                entry("key/1", 0, header=header(tags={"team": "red"})),
                entry("key/2", 0, header=header(tags=tags)),
                entry("kez", 0, header=header(tags={"blue": "team"})),
            ]
        )
        cases = [
            (Query(status="done"), ["1"]),
            (Query(flow="other"), ["2"]),
            (Query(tag=("team", "blue")), ["2", "key/2"]),
            (Query(tag=('o"dd\\', "v:,{}")), ["2", "key/2"]),
            (Query(tag=("team", "bl")), []),
            (Query(prefix="key/"), ["key/1", "key/2"]),
            (Query(prefix=""), ["1", "2", "key/1", "key/2", "kez"]),
            (Query(flow="support", status="running", tag=("team", "red")), ["key/1"]),
            (Query(status="nothing"), []),
        ]

        for query, expected in cases:
            assert expected == await found_ids(store, query)

    async def test_a_tag_is_not_found_inside_another(self, store: Store) -> None:
        """However the tags are kept, only a tag of that name and value counts."""
        tricky = {'x"k': "v", "abc,": ":", "y": '"k":"v"', "z": "v\0w"}
        await store.commit([entry("r", 0, header=header(tags=tricky))])

        assert [] == await found_ids(store, Query(tag=("k", "v")))
        assert [] == await found_ids(store, Query(tag=("z", "v")))
        assert ["r"] == await found_ids(store, Query(tag=("z", "v\0w")))

    @pytest.mark.parametrize("prefix", ["a", "a\ud7ff", "a\U0010ffff", "\U0010ffff", "%", "_", "*"])
    async def test_a_prefix_is_no_pattern(self, store: Store, prefix: str) -> None:
        """It matches what begins with it, to the letter, at the ends of the alphabet too."""
        ids = ["a", "ab", "a\ud7ff", "a\ud7ffx", "a\ue000", "a\U0010ffff", "a\U0010ffff1"]
        ids += ["b", "\U0010ffff", "\U0010ffff\U0010ffff", "%x", "_x", "*x", "A"]
        await store.commit([entry(run_id, 0) for run_id in ids])

        expected = [run_id for run_id in ids if run_id.startswith(prefix)]

        assert expected == await found_ids(store, Query(prefix=prefix))

    async def test_a_rare_tag_is_found_behind_many(self, store: Store) -> None:
        """Paging goes on until the page is full or the runs are at an end."""
        rare = header(tags={"rare": "yes"})
        await store.commit(
            [
                entry(f"r{number}", 0, header=rare if number % 100 == 99 else header())
                for number in range(500)
            ]
        )

        first = await store.find(Query(tag=("rare", "yes")), limit=3)
        second = await store.find(Query(tag=("rare", "yes")), first.next, limit=3)

        assert ["r99", "r199", "r299"] == [found.head.run_id for found in first.items]
        assert ["r399", "r499"] == [found.head.run_id for found in second.items]

    async def test_a_page_has_a_limit(self, store: Store) -> None:
        """A page is never larger than the seam allows, nor smaller than one."""
        await store.commit([entry(f"r{number}", 0) for number in range(1_001)])

        assert 1_000 == len((await store.find(Query(), limit=5_000)).items)
        assert 1 == len((await store.find(Query(), limit=0)).items)

    @pytest.mark.parametrize("after", ["", "x", "-1", "1 OR 1=1", "9" * 40, "\u0663"])
    async def test_a_page_that_never_was_is_refused(self, store: Store, after: str) -> None:
        """With the remedy."""
        with pytest.raises(UsageError, match="next"):
            await store.find(Query(), after)

    async def test_a_healthy_store_has_no_problems(self, store: Store) -> None:
        """It names itself and its facts."""
        health = await store.health()

        assert health.store
        assert health.facts
        assert [] == list(health.problems)

    async def test_closing_twice_is_fine(self, store: Store) -> None:
        """The second time there is nothing left to do."""
        await store.beat("w")

        await store.close()
        await store.close()


async def found_ids(store: Store, query: Query) -> list[str]:
    """The ids on the first page."""
    return [found.head.run_id for found in (await store.find(query)).items]
