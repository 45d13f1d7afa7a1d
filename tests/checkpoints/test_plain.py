"""The same verbs for plain code: nothing awaited, the same journal."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

from outlive import Retry
from outlive import checkpoints as awaited
from outlive.errors import DefinitionRefused, UsageError
from outlive.sync import checkpoints as plain

#: What only runners need of a store.
INNER = {
    "SnapshotStore": {"save", "bring", "restore", "metadata", "roll_back", "end", "clear"}
    | {"clear_old", "find", "fork", "check", "let_go"},
    "DurableRunner": set(),
    "AutoRun": {"perform", "begin", "leave"},
}


@pytest.mark.parametrize("name", INNER)
def test_every_verb_has_its_twin(name: str) -> None:
    """With the same parameters."""
    methods = inspect.getmembers_static(getattr(awaited, name), inspect.isfunction)
    verbs = {k: each for k, each in methods if not k.startswith("_") and k not in INNER[name]}
    assert verbs
    for verb, method in verbs.items():
        twin = getattr(getattr(plain, name), verb)
        assert twin.__doc__, verb
        if verb != "step":
            wanted, found = inspect.signature(method), inspect.signature(twin)
            assert list(wanted.parameters) == list(found.parameters), verb


def test_a_plain_loop(path: Path) -> None:
    """Saved, resumed, looked at, gone back, forked, cleaned up."""
    url = f"sqlite:///{path}"
    with plain.SnapshotStore(url) as store:
        runner = plain.DurableRunner(store)
        for number in range(3):
            runner.checkpoint("r", f"s{number}", {"n": number}, {"m": number})
    runner = plain.DurableRunner(url)

    assert {"n": 2} == runner.resume("r")
    assert {"n": 1} == runner.resume("r", "s1")
    assert ["s0", "s1", "s2"] == [each.step_id for each in runner.list_checkpoints("r")]
    assert ["$.n"] == [change.path for change in runner.diff("r", "s0")]
    assert {"n": 2} == runner.fork("r", "f")
    assert {"n": 0} == runner.rollback("r", "s0")
    assert [True, False, False] == [each.is_current for each in runner.history("r")]
    runner.finish("f")
    assert ["succeeded"] == [run.status for run in runner.store.runs() if run.run_id == "f"]
    assert 3 == runner.cleanup_old(0)
    assert "checkpoint.rolled_back" == runner.events("r")[-1]["event_type"]
    assert 1 == runner.cleanup("r")
    assert [] == runner.store.runs()
    runner.store.ensure_run_initialized("q")
    runner.store.save_snapshot("q", "s", {})
    assert runner.store.get_latest_snapshot("q") == runner.store.get_snapshot("q", 2)
    assert runner.store.get_snapshot_by_step("q", "s") == runner.store.list_snapshots("q")[0]
    assert ("running", 1) == (runner.store.status("q"), runner.store.delete_snapshots("q"))
    runner.close()


def test_steps_of_plain_code_save_themselves(path: Path) -> None:
    """Each once, tried again when they fail, with the state as it was."""
    tries: list[str] = []

    def flaky(state: dict[str, Any], text: str) -> int:
        tries.append(text)
        state["texts"].append(text)
        if len(tries) == 1:
            raise OSError("down")
        return len(state["texts"])

    for _ in range(2):
        runner = plain.DurableRunner(f"sqlite:///{path}", retry=Retry(attempts=2, delay=0))
        with runner.auto("r", {"texts": []}) as run:
            assert 1 == run.step("add", flaky, run.state, "a")
            assert {"texts": ["a"]} == run.state
            assert {"add"} == run.done
        runner.close()
    assert ["a", "a"] == tries
    runner = plain.DurableRunner(f"sqlite:///{path}")

    def fail() -> None:
        with runner.auto("r") as run:
            run.checkpoint("more", {"why": run.run_id})
            assert run.state == run.rollback("add")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert "failed" == runner.store.status("r")
    runner.close()


def test_a_plain_function_is_made_a_step(path: Path) -> None:
    """Of the run around it; within a step, and outside of runs, it is a plain call."""
    runner = plain.DurableRunner(f"sqlite:///{path}", retry=Retry(attempts=2, delay=0))
    ran: list[str] = []

    @runner.step
    def inner(word: str) -> str:
        ran.append(word)
        return word.upper()

    @runner.step(name="named", retry=Retry(attempts=3, delay=0))
    def outer(state: dict[str, Any]) -> str:
        """What it does."""
        state["n"] = state.get("n", 0) + 1
        if len(ran) < 3:
            ran.append("try")
            raise OSError("down")
        return inner("deep")

    assert ("A", "What it does.") == (inner("a"), outer.__doc__)
    for _ in range(2):
        with runner.auto("r") as run:
            assert ("B", "DEEP") == (inner("b"), outer(run.state))
            assert ({"inner", "named"}, {"n": 1}) == (run.done, run.state)
    assert ["a", "b", "try", "deep"] == ran
    assert runner.snapshot_store is runner.store
    with pytest.raises(DefinitionRefused, match="is async; it is a step of"):
        runner.step(asyncio.sleep)
    with pytest.raises(DefinitionRefused, match="5 can't be called"):
        runner.step(5)  # type: ignore[call-overload]  # refused
    runner.close()


def test_a_run_that_is_interrupted_is_let_go_of(path: Path) -> None:
    """Whoever pressed Ctrl-C may clean up."""
    runner = plain.DurableRunner(f"sqlite:///{path}")

    def interrupt() -> None:
        with runner.auto("r") as run:
            run.checkpoint("s")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert 1 == runner.cleanup("r")
    runner.close()


async def test_a_loop_is_not_blocked_by_mistake(path: Path) -> None:
    """Plain verbs refuse where a loop runs."""
    runner = plain.DurableRunner(f"sqlite:///{path}")
    with pytest.raises(UsageError, match="a loop is running here"):
        runner.resume("r")
    await asyncio.to_thread(runner.close)
