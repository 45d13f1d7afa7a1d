"""The user's frames: where an exception was raised is told wherever the exception is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import outlive
from outlive.engine.definitions import registry
from outlive.engine.faults import FRAMES_MAX, exception_of, fault_of
from outlive.errors import RunFailed, StepFailed
from outlive.journal.codec.codec import codec_for
from outlive.model.events import EffectDoubted, EffectRaised, StepRaised
from outlive.model.events import RunFailed as HasFailed
from tests.harness.scene import Scene, live_and_replayed

CODEC = codec_for([], registry)
#: No variable and no source of it may be seen.
SECRET = "hunter2"


class Odd(Exception):
    """As those of httpx and openai: made from other things than its arguments."""

    def __init__(self, message: str, *, response: object, status_code: int) -> None:
        super().__init__(message)
        self.response, self.status_code = response, status_code


def parse(text: str) -> int:
    secret = SECRET + text
    return int(text) + len(secret)


def deep(levels: int) -> None:
    if levels:
        deep(levels - 1)
    raise ValueError("the bottom")


@outlive.step
async def breaking() -> int:
    try:
        return parse("x")
    except ValueError as error:
        error.add_note("look at the input")
        raise LookupError("no number") from error


@outlive.step
def breaking_plainly() -> int:
    return parse("x")


async def notes_of(call: Any) -> list[str]:
    try:
        await call()
    except Exception as error:
        return list(error.__notes__)
    return []


@pytest.mark.parametrize("step", [breaking, breaking_plainly], ids=["async", "plain"])
async def test_the_flow_sees_where_a_step_raised(scene: Scene, step: Any) -> None:
    """Live as on replay: file, line and function, and what led to it; nothing of ours."""

    @outlive.flow
    async def catching() -> list[str]:
        return await notes_of(step)

    live, replayed = await live_and_replayed(scene, catching)

    assert live == replayed
    (note,) = live
    assert f"raised in 0/{step.__name__}#1:" in note
    assert f'File "{__file__}"' in note
    assert "in parse" in note
    assert "outlive/engine" not in note
    assert SECRET not in note
    if step is breaking:
        assert "caused by ValueError: invalid literal" in note
        assert "look at the input" in note


async def test_a_failed_run_tells_the_frames_of_flow_and_step(scene: Scene) -> None:
    """In its journal and on the exception that its owner gets."""

    @outlive.flow
    async def failing() -> int:
        return await breaking()

    handle = await scene.open().start(failing, id="r")
    with pytest.raises(RunFailed) as failed:
        await scene.outcome(handle)

    cause = failed.value.__cause__
    assert cause is not None
    told = "\n".join(cause.__notes__)
    assert told.index("in test_a_failed_run") < told.index("in breaking") < told.index("in parse")
    (ended,) = await scene.events(handle, HasFailed)
    assert ended.error.trace == told
    (raised,) = await scene.events(handle, StepRaised)
    assert "in parse" in raised.error.trace


async def test_effects_and_undos_tell_their_frames(scene: Scene) -> None:
    """Of what is in doubt as of what failed."""

    async def take_back() -> None:
        parse("undo")

    @outlive.effect(undo=outlive.step(retry=outlive.Retry(attempts=2, delay=0))(take_back))
    async def pay() -> None:
        """Always comes off."""

    @outlive.effect(doubt="fail")
    async def ring() -> None:
        parse("ring")

    @outlive.flow
    async def shop() -> None:
        await pay()
        await ring()

    handle = await scene.open().start(shop, id="r")
    with pytest.raises(RunFailed):
        await scene.outcome(handle)

    doubted = await scene.events(handle, EffectDoubted)
    assert doubted
    assert all("in parse" in event.error.trace for event in doubted)
    raised = await scene.events(handle, EffectRaised)
    assert "in parse" in raised[-1].error.trace
    assert raised[-1].step.startswith("undo:")


async def test_a_failing_check_is_logged_with_its_frames(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """Its author must find it."""

    async def find() -> Any:
        parse("check")

    @outlive.effect(check=find, settle_after="1s")
    async def ring() -> None:
        raise OSError("the line went dead")

    @outlive.flow
    async def calling() -> None:
        await ring()

    await scene.open().start(calling, id="r")
    await scene.until(lambda: "in parse" in caplog.text)


def test_frames_have_a_bound() -> None:
    """The outermost and the innermost are kept; causes share what is left."""
    with pytest.raises(ValueError, match="the bottom") as met:
        deep(200)

    trace = fault_of(met.value, CODEC).trace.split("\n")

    assert len(trace) == FRAMES_MAX
    assert "in test_frames_have_a_bound" in trace[0]
    assert "in deep" in trace[-1]


def test_a_group_tells_of_each_of_its_own() -> None:
    """As task groups raise them."""

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(parse, "y"))

    with pytest.raises(ExceptionGroup) as met:
        asyncio.run(main())

    assert "one of them: ValueError" in fault_of(met.value, CODEC).trace
    assert "in parse" in fault_of(met.value, CODEC).trace


async def test_a_declared_type_comes_back_whatever_its_constructor_takes(scene: Scene) -> None:
    """With those of its attributes that can be recorded."""

    @outlive.step(raises=(Odd,))
    async def asking() -> None:
        raise Odd("too many requests", response=object(), status_code=429)

    @outlive.flow
    async def catching() -> list[Any]:
        try:
            await asking()
        except Odd as error:
            return [str(error), error.status_code, hasattr(error, "response")]
        return []

    for outcome in await live_and_replayed(scene, catching):
        assert outcome == ["too many requests", 429, False]


class Worded(Exception):
    """Makes a text of what it is given, and takes no text."""

    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


def test_a_declared_type_that_words_its_arguments_comes_back() -> None:
    """It is not worded twice."""
    own = {"Worded": Worded}

    back = exception_of(fault_of(Worded(5), CODEC, own), own, CODEC)

    assert [type(back), str(back), vars(back)] == [Worded, "code 5", {"code": 5}]


def test_an_earlier_record_of_such_a_type_comes_back_as_before() -> None:
    """Journals from before say nothing of its attributes: the flow was told ``StepFailed``."""
    own = {"Odd": Odd}
    fault = fault_of(Odd("no", response=1, status_code=5), CODEC, own)

    assert type(exception_of(fault, own, CODEC)) is Odd
    earlier = type(fault)(fault.type_name, fault.message, fault.args)
    assert type(exception_of(earlier, own, CODEC)) is StepFailed
