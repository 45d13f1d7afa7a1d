"""Agents and their cuts in plain code: the same verbs, nothing awaited."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from outlive.checkpoints import DurableRunner, Exchange
from outlive.errors import UsageError
from outlive.sync import checkpoints as plain


@pytest.mark.parametrize(
    ("awaited", "twin"),
    [
        (Exchange, plain.Exchange),
        (DurableRunner, plain.DurableRunner),
    ],
)
def test_every_verb_has_its_twin(awaited: type, twin: type) -> None:
    """With the same parameters, and words of its own."""
    methods = inspect.getmembers_static(awaited, inspect.isfunction)
    verbs = {verb: method for verb, method in methods if not verb.startswith("_")}
    assert verbs
    for verb, method in verbs.items():
        other = getattr(twin, verb)
        assert list(inspect.signature(method).parameters) == list(
            inspect.signature(other).parameters
        ), verb
        assert other.__doc__, verb


def test_agents_of_plain_code(tmp_path: Path) -> None:
    """They talk, are cut, restored, and go on."""
    one = plain.DurableRunner(f"sqlite:///{tmp_path}/one.db", enabled=True)
    other = plain.DurableRunner(f"sqlite:///{tmp_path}/other.db", enabled=True)
    ada = one.exchange("ada", peers=["bob"])
    ada.send("bob", "hello")
    ada.checkpoint("sent", {"n": 1})
    ada.look()
    ada.leave()

    cut = one.cut(["ada", "bob"], name="noon")
    plain.restore_cut(cut, into=other)
    bob = other.exchange("bob", peers=["ada"])
    message = bob.receive(timeout=0)

    assert message is not None
    assert ("ada", "hello") == (message.sender, message.body)
    assert ("ada", ("bob",), {"n": 1}, "sent") == (ada.run_id, ada.peers, ada.state, ada.step_id)
    assert (["noon"], cut) == (one.list_cuts(), one.get_cut("noon"))
    one.delete_cut("noon")
    assert [] == one.list_cuts()
    one.close()
    other.close()


async def test_plain_verbs_are_not_for_loops(tmp_path: Path) -> None:
    """Where a loop runs, the async verbs are named."""
    with (
        plain.SnapshotStore(f"sqlite:///{tmp_path}/one.db") as store,
        pytest.raises(UsageError),
    ):
        plain.DurableRunner(store, enabled=True).exchange("ada", peers=["bob"])
