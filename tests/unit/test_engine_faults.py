"""Errors of ours, to the journal and back."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import pytest

import outlive
from outlive import errors
from outlive.engine.definitions import registry
from outlive.engine.faults import exception_of, fault_of
from outlive.errors import OutliveError, RunFailed, TimedOut
from outlive.journal.codec import codec_for
from tests.unit.scene import Scene

CODEC = codec_for([], registry)
OURS = [each for each in vars(errors).values() if inspect.isclass(each)]


def made(cls: type[OutliveError]) -> OutliveError:
    """One of these, with a value for whatever it is made from."""
    if not inspect.isfunction(cls.__init__):
        return cls("what happened, and what to do")
    values: dict[Any, Any] = {str: "text", int: 7, object: 3}
    hints = get_type_hints(cls.__init__)
    names = list(inspect.signature(cls.__init__).parameters)[1:]
    return cls(**{name: values.get(hints[name], ["one", "two"]) for name in names})


@pytest.mark.parametrize("cls", OURS, ids=lambda cls: cls.__name__)
def test_every_error_of_ours_comes_back_as_itself(cls: type[OutliveError]) -> None:
    """With its text and with its facts: a step may raise any of them."""
    error = made(cls)

    back = exception_of(fault_of(error, CODEC), {}, CODEC)

    assert type(back) is cls
    assert [str(back), vars(back)] == [str(error), vars(error)]


async def test_a_passed_deadline_is_a_time_limit(scene: Scene) -> None:
    """The cause of such a failure is the error that users catch elsewhere."""

    @outlive.flow(deadline="10s")
    async def slow() -> None:
        await outlive.sleep("1h")

    handle = await scene.open().start(slow, id="r")
    with pytest.raises(RunFailed) as failed:
        await scene.outcome(handle, step=1)

    assert type(failed.value.__cause__) is TimedOut
    assert str(failed.value.__cause__) == "the run's deadline passed"
