"""What every store owes those who list runs: filters, orders, counts, changes, workers."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from outlive.errors import UsageError
from outlive.stores.seam import Store
from outlive.stores.types import Count, Found, Query
from outlive.testing.suite.entries import START_MS, delete_one, entry, header, held, takeover

STATUSES = ("running", "failed", "completed", "waiting", "in_doubt")
ERROR = "BankError at bank.py:pay"


async def commit_many(store: Store, count: int = 40) -> None:
    """Runs of all kinds; the higher their number, the later they started."""
    for number in range(count):
        status = STATUSES[number % len(STATUSES)]
        shown: dict[str, Any] = {
            "status": status,
            "flow": f"flow-{number % 2}",
            "version": str(number % 3),
            "queue": "quick" if number % 4 == 1 else "default",
            "parent": f"r{number % 4:02}" if number > 3 else None,
            "tags": {"team": "red" if number % 3 else "blue", "at": str(number % 2)},
            "error": ERROR if status == "failed" else "",
            "questions": "[]" if status == "waiting" else "",
            "started_at": START_MS + number,
            "ended_at": START_MS + 100 + number if status in ("failed", "completed") else None,
        }
        # What is held is not in a queue when it begins.
        first = entry(f"r{number:02}", 0, header=header(**shown))
        if status == "running" and shown["queue"] == "default" and number % 2:
            first = replace(first, lease="take", worker="w")
        assert [None] == list(await store.commit([first]))
    await store.commit([entry("key/k", 0, header=header(flow="", started_at=0, status="held"))])


async def listed(store: Store, query: Query, limit: int = 7) -> list[str]:
    """All runs that a query asks for, page by page."""
    found: list[Found] = []
    after = None
    while True:
        page = await store.find(replace(query, runs=True), after, limit)
        found += page.items
        if page.next is None:
            return [run.id for run in found]
        after = page.next


def _ids(*numbers: int) -> list[str]:
    return [f"r{number:02}" for number in numbers]


_HELD = [number for number in range(40) if number % 10 == 5 and number % 4 != 1]
#: What is asked, and the numbers of the runs that it asks for.
CASES: dict[str, tuple[Query, list[int]]] = {
    "nothing": (Query(), list(range(40))),
    "status": (Query(status="failed"), list(range(1, 40, 5))),
    "running": (Query(status="running"), list(range(0, 40, 5))),
    "completed": (Query(status="completed"), list(range(2, 40, 5))),
    "statuses": (
        Query(status=("failed", "in_doubt", "running")),
        [number for number in range(40) if number % 5 in (0, 1, 4)],
    ),
    "no such status": (Query(status="quarantined"), []),
    "flow": (Query(flow="flow-1"), list(range(1, 40, 2))),
    "version": (Query(version="2"), list(range(2, 40, 3))),
    "queue": (Query(queue="quick"), list(range(1, 40, 4))),
    "no queue": (Query(queue="default"), [number for number in range(40) if number % 4 != 1]),
    "parent": (Query(parent="r02"), list(range(6, 40, 4))),
    "worker": (Query(worker="w"), _HELD),
    "prefix": (Query(prefix="r1"), list(range(10, 20))),
    "error": (Query(error=ERROR), list(range(1, 40, 5))),
    "asking": (Query(is_asking=True), list(range(3, 40, 5))),
    "tag": (Query(tag=("team", "blue")), list(range(0, 40, 3))),
    "tags": (Query(tags=(("team", "blue"), ("at", "1"))), list(range(3, 40, 6))),
    "since": (Query(started_since=START_MS + 35), list(range(35, 40))),
    "until": (Query(started_before=START_MS + 5), list(range(5))),
    "ended": (
        Query(ended_since=START_MS + 110, ended_by=START_MS + 117),
        [11, 12, 16, 17],
    ),
    "flow and status": (Query(flow="flow-1", status="failed"), list(range(1, 40, 10))),
    "tag and status": (
        Query(tag=("team", "blue"), status=("failed", "waiting")),
        [3, 6, 18, 21, 33, 36],
    ),
    "tag and running": (Query(tag=("team", "blue"), status="running"), [0, 15, 30]),
    "since and status": (
        Query(status="failed", started_since=START_MS + 11),
        list(range(11, 40, 5)),
    ),
    "flow and running": (Query(flow="flow-1", status="running"), list(range(5, 40, 10))),
    "all": (
        Query(flow="flow-1", status="failed", version="1", tags=(("at", "1"),), error=ERROR),
        [1, 31],
    ),
}


class ListRules:
    """Lists of runs."""

    @pytest.mark.parametrize("name", CASES)
    async def test_runs_are_listed_by_what_they_are(self, store: Store, name: str) -> None:
        """In both orders, page by page, and as many as are counted; journals of keys are not."""
        query, numbers = CASES[name]
        await commit_many(store)

        assert _ids(*numbers) == await listed(store, query)
        assert _ids(*reversed(numbers)) == await listed(store, replace(query, newest=True))
        assert Count(value=len(numbers)) == await store.count(query)

    async def test_a_count_has_a_limit(self, store: Store) -> None:
        """It says that there may be more."""
        await commit_many(store, 12)

        assert Count(value=10, is_capped=True) == await store.count(Query(), 10)
        assert Count(value=12) == await store.count(Query(), 12)
        capped = await store.count(Query(tag=("at", "0")), 5)
        assert (5, "5+") == (capped.value, str(capped))

    async def test_tags_that_change_are_found_as_they_are(self, store: Store) -> None:
        """By the new value and no longer by the old one; a run that is gone by none."""
        plain = {"ended_at": None, "started_at": START_MS}
        await store.commit([entry("r", 0, header=header(tags={"a": "1", "b": "x"}, **plain))])
        await store.commit([entry("s", 0, header=header(tags={"a": "1"}, **plain))])

        await store.commit([entry("r", 1, header=header(tags={"a": "2", "b": "x"}, **plain))])

        assert ["s"] == await listed(store, Query(tag=("a", "1")))
        assert ["r"] == await listed(store, Query(tag=("a", "2")))
        assert ["r"] == await listed(store, Query(tag=("b", "x"), status="running"))
        done = header(tags={"a": "2"}, status="failed", ended_at=START_MS)
        await store.commit([entry("r", 2, header=done)])
        assert ["r"] == await listed(store, Query(tag=("a", "2"), status="failed"))
        assert [] == await listed(store, Query(tag=("b", "x")))
        assert await delete_one(store, "r", seq=3, digest=b"", keep_until=0)
        assert [] == await listed(store, Query(tag=("a", "2")))

    async def test_an_odd_tag_is_found(self, store: Store) -> None:
        """However long it is, and whatever it is made of."""
        tags = {"z": "v\0w", "x" * 300: "y" * 5_000, 'o"\\u0000\\': "\1\2{}", "ü": ""}
        await store.commit([entry("r", 0, header=header(tags=tags))])
        await store.commit([entry("s", 0, header=header(tags={"z": "v", "x" * 300: "y" * 4_999}))])

        for tag in tags.items():
            assert ["r"] == await listed(store, Query(tag=tag))
            assert Count(value=1) == await store.count(Query(tag=tag))

    async def test_a_status_that_changes_is_found_as_it_is(self, store: Store) -> None:
        """Held or free, tagged or not."""
        tags = {"a": "1"}
        await store.commit([held("r", "w", header=header(tags=tags))])
        way = ("waiting", "running", "in_doubt", "undoing", "failed", "pending", "completed")
        for seq, status in enumerate(way, 1):
            before = ("running", *way)[seq - 1]
            await store.commit([entry("r", seq, header=header(tags=tags, status=status))])
            for query in (Query(), Query(tag=("a", "1")), Query(flow=header().flow)):
                assert ["r"] == await listed(store, replace(query, status=status))
                assert [] == await listed(store, replace(query, status=before))

    async def test_a_list_is_stable(self, store: Store) -> None:
        """Runs that come, go on and go while one pages: none is seen twice, none is missed."""
        await commit_many(store, 20)
        for is_newest in (False, True):
            query, seen, after = Query(runs=True, newest=is_newest), list[str](), None
            for turn in range(100):
                page = await store.find(query, after, limit=3)
                seen += [run.id for run in page.items]
                after = page.next
                if after is None:
                    break
                shown = header(started_at=START_MS + 1000)
                await store.commit([entry(f"new-{is_newest}-{turn}", 0, header=shown)])
            assert len(seen) == len(set(seen))
            assert set(_ids(*range(20))) <= set(seen)

    @pytest.mark.parametrize("after", ["", "7", "x.y", "1.2.3", f"{1 << 70}.1", "1.-2"])
    async def test_a_cursor_of_nobody_is_refused(self, store: Store, after: str) -> None:
        """Only the `next` of a page of runs is a cursor."""
        with pytest.raises(UsageError, match="no page of this store"):
            await store.find(Query(runs=True), after)

    async def test_changes_are_told_once(self, store: Store) -> None:
        """From the cursor on, each run as it is now; what did not move is not told."""
        await commit_many(store, 5)
        begin = (await store.changes()).next

        nothing = await store.changes(begin)
        await store.commit([entry("r01", 1), entry("r03", 1)])
        await store.commit(
            [entry("r03", 2), entry("r09", 0), entry("key/other", 0, header=header(flow=""))]
        )
        first = await store.changes(nothing.next)
        again = await store.changes(begin, limit=2)
        rest = await store.changes(again.next, limit=1000)

        assert [] == list(nothing.items)
        moved = {run.id: run.head.seq for run in first.items}
        assert {"r01": 2, "r03": 3, "r09": 1} == moved
        assert moved == {run.id: run.head.seq for run in (*again.items, *rest.items)}
        assert [] == list((await store.changes(first.next)).items)

    async def test_what_was_deleted_hides_no_change(self, store: Store) -> None:
        """Whoever follows misses nothing when the newest runs go."""
        await commit_many(store, 3)
        await store.commit([entry("old", 0)])
        await store.commit([entry("old", 1, header=header(status="failed", ended_at=START_MS))])
        begin = (await store.changes()).next

        assert await delete_one(store, "old", seq=2, digest=b"", keep_until=0)
        await store.commit([entry("new", 0)])

        assert ["new"] == [run.id for run in (await store.changes(begin)).items]

    @pytest.mark.parametrize("after", ["", "x", "1:2", "-1"])
    async def test_a_place_of_nobody_is_refused(self, store: Store, after: str) -> None:
        """Only the `next` of an earlier answer is a place among the changes."""
        with pytest.raises(UsageError, match="no page of this store"):
            await store.changes(after)

    async def test_workers_are_listed(self, store: Store) -> None:
        """With what they say of themselves and how many runs they hold, until they are released."""
        await store.beat("w", '{"host": "here"}')
        await store.beat("idle")
        await store.commit([held("a", "w"), held("b", "w"), entry("c", 0)])
        await store.commit([takeover("c", 1, "w", epoch=2)])

        there = {each.worker: each for each in await store.workers()}

        assert {"idle": ("", 0), "w": ('{"host": "here"}', 3)} == {
            name: (each.about, each.held) for name, each in there.items()
        }
        assert all(each.beat_at is not None for each in there.values())
        await store.release("w")
        assert ["idle"] == [each.worker for each in await store.workers()]
