"""A question is its text: an answer counts for what was asked, however the code changed since."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Literal

import pytest

import outlive
from outlive.engine import people
from outlive.errors import ReplayMismatch, RunFailed
from outlive.model.events import (
    Answered,
    MailRead,
    Parked,
    QuestionAsked,
    QuestionClosed,
    SignalTaken,
    StepRaised,
)
from outlive.model.mail import Signal
from tests.harness.theatre import Theatre
from tests.harness.world import pay, world


class Script:
    """What the code says: changed between two processes, as by a deployment."""

    text = "delete beta?"
    hint: Any = bool
    sleeps = False


@dataclass(repr=False)
class Thing:
    name: str

    def __repr__(self) -> str:
        return f"<Thing at {id(self)}>"


@outlive.flow
async def deleting() -> str:
    said = await people.ask(Script.text, type=Script.hint)
    if Script.sleeps:
        await outlive.sleep("1h")
    return f"{Script.text} {said}"


@pytest.fixture(autouse=True)
def _script(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("text", "hint", "sleeps"):
        monkeypatch.setattr(Script, name, getattr(Script, name))


async def asked_once(stage: Theatre) -> None:
    """The old code asks, and its process dies."""
    app = stage.open()
    await app.start(deleting, id="r")
    await stage.asked("r")
    await stage.has("r", Parked)
    await stage.crash(app)


async def asked_anew(stage: Theatre, question: str) -> QuestionAsked:
    """Wait until the run asks this, and nothing else."""

    async def found() -> Any:
        questions = (await stage.fold("r")).questions
        return list(questions) == [question] and questions[question]

    asked: QuestionAsked = await stage.until(found)
    return asked


async def test_a_yes_to_another_text_is_not_taken(stage: Theatre) -> None:
    """The answer that lay in the mailbox is read and dropped; the new text is asked for itself."""
    await asked_once(stage)
    await stage.answer("r", "0/ask#1", b"true")
    Script.text = "delete delta?"
    handle = await stage.open().start(deleting, id="r")

    anew = await asked_anew(stage, "0/ask#1~2")
    assert "delete delta?" == anew.text
    read = await stage.has("r", MailRead)
    assert "0/ask#1~2" in read.why
    assert [] == await stage.events("r", Answered)
    (closed,) = await stage.events("r", QuestionClosed)
    assert "0/ask#1" == closed.question
    await stage.answer("r", "0/ask#1~2", b"false")

    assert "delete delta? False" == await stage.outcome(handle)


@pytest.mark.parametrize("changed", ["text", "hint"])
async def test_a_changed_question_is_asked_anew_as_often_as_it_changes(
    theatre: Theatre, changed: str
) -> None:
    """Each time under an id of its own, and replayed as it went."""
    versions: list[Any] = ["a?", "b?", "c?"] if changed == "text" else [bool, int, Literal[1, 2]]
    setattr(Script, changed, versions[0])
    await asked_once(theatre)
    for number, version in enumerate(versions[1:], 2):
        setattr(Script, changed, version)
        app = theatre.open()
        handle = await app.start(deleting, id="r")
        await app.nudge("r", f"look again {number}")  # it only waits: nobody would look at it
        await asked_anew(theatre, f"0/ask#1~{number}")
        await theatre.crash(app)
    app = theatre.open()
    handle = await app.start(deleting, id="r")
    await app.nudge("r", "look again")
    await theatre.has("r", MailRead, 3)
    await asked_anew(theatre, "0/ask#1~3")
    Script.sleeps = True
    await theatre.answer("r", "0/ask#1~3", b"true" if changed == "text" else b"2")
    await theatre.has("r", Answered)
    await theatre.crash(app)
    theatre.pass_time(3600)

    outcome = await theatre.outcome(await theatre.open().start(deleting, id="r"))
    assert outcome.endswith("True" if changed == "text" else "2"), handle
    assert 3 == len(await theatre.events("r", QuestionAsked))


@pytest.mark.parametrize("times", [1, 2])
async def test_an_answered_question_with_another_text_is_a_mismatch(
    stage: Theatre, times: int
) -> None:
    """Both texts are told, and nothing of the flow runs."""
    Script.sleeps = True
    await asked_once(stage)
    question = "0/ask#1"
    if times == 2:
        Script.text, question = "delete gamma?", "0/ask#1~2"
        app = stage.open()
        await app.start(deleting, id="r")
        await app.nudge("r", "look again")
        await asked_anew(stage, question)
        await stage.crash(app)
    old = Script.text
    app = stage.open()
    await app.start(deleting, id="r")
    await stage.answer("r", question, b"true")
    await stage.has("r", Answered)
    await stage.crash(app)
    Script.text = "delete delta?"
    stage.pass_time(3600)
    handle = await stage.open().start(deleting, id="r")

    with pytest.raises(ReplayMismatch) as met:
        await stage.outcome(handle)
    assert old in met.value.recorded
    assert "delete delta?" in met.value.code


async def test_an_answered_question_with_other_choices_is_a_mismatch(stage: Theatre) -> None:
    """Also where the answer that was given would fit today's choices."""
    Script.hint, Script.sleeps = Literal["yes", "no"], True
    await asked_once(stage)
    app = stage.open()
    await app.start(deleting, id="r")
    await stage.answer("r", "0/ask#1", b'"yes"')
    await stage.has("r", Answered)
    await stage.crash(app)
    Script.hint = Literal["yes", "no", "later"]
    stage.pass_time(3600)
    handle = await stage.open().start(deleting, id="r")

    with pytest.raises(ReplayMismatch) as met:
        await stage.outcome(handle)
    assert "later" in met.value.code
    assert "later" not in met.value.recorded


async def test_an_approval_is_for_its_effect(stage: Theatre) -> None:
    """Another effect with the same arguments needs a yes of its own."""

    @outlive.effect
    async def refund(name: str) -> None:
        world.ran.append(f"refund {name}")

    effect: Any = pay

    @outlive.flow
    async def approving() -> bool:
        granted: bool = (await people.approve(effect, "7")).granted
        if granted:
            await effect("7")
        return granted

    app = stage.open()
    await app.start(approving, id="r")
    await stage.asked("r")
    await stage.crash(app)
    await stage.answer("r", "0/approve#1", b"true")
    effect = refund
    handle = await stage.open().start(approving, id="r")
    await asked_anew(stage, "0/approve#1~2")
    assert [] == world.ran
    await stage.answer("r", "0/approve#1~2", b"true")

    assert await stage.outcome(handle)
    assert ["refund 7"] == world.ran


async def test_an_approval_is_not_compared_by_how_its_arguments_look(stage: Theatre) -> None:
    """What a person reads of them may hold an address, which is another in each process."""

    kept: list[Thing] = []

    @outlive.effect
    async def send(thing: Thing) -> None:
        raise AssertionError("nobody calls it")

    @outlive.flow
    async def approving() -> bool:
        kept.append(Thing("7"))
        granted: bool = (await people.approve(send, kept[-1])).granted
        return granted

    app = stage.open()
    await app.start(approving, id="r")
    await stage.asked("r")
    await stage.crash(app)
    handle = await stage.open().start(approving, id="r")
    await stage.answer("r", "0/approve#1", b"true")

    assert await stage.outcome(handle)
    assert 1 == len(await stage.events("r", QuestionAsked))


async def test_a_retry_takes_no_answer_for_another_question(stage: Theatre) -> None:
    """What was answered before a failure counts for the same text only."""
    fails = True

    @outlive.step
    async def work() -> None:
        if fails:
            raise ValueError("no good")

    @outlive.flow(name="asks_then_fails")
    async def flow() -> str:
        said = asyncio.ensure_future(people.ask(Script.text, type=bool))
        await outlive.sleep("1s")
        try:
            await work()
        finally:
            if fails:
                await said
        return f"{Script.text} {await said}"

    app = stage.open()
    handle = await app.start(flow, id="r")
    await stage.has("r", StepRaised)
    await stage.answer("r", "0.1/ask#1", b"true")
    with pytest.raises(RunFailed):
        await stage.outcome(handle)
    await stage.crash(app)
    fails, Script.text = False, "delete delta?"
    app = stage.open()
    await app.retry("r")
    handle = await app.start(flow, id="r")

    with pytest.raises(ReplayMismatch, match=r"beta.*delta"):
        await stage.outcome(handle)


@dataclass
class Refund:
    order: str


@dataclass
class Deletion:
    order: str


@pytest.mark.parametrize("verb", ["signal", "requests"])
async def test_a_signal_that_was_taken_as_another_type_is_a_mismatch(
    theatre: Theatre, verb: str
) -> None:
    """Also where today's type could read it; both types are told."""
    hint: Any = Refund

    @outlive.flow
    async def taking() -> str:
        if verb == "signal":
            taken = await people.wait_signal("order", hint)
        else:
            async for request in people.requests("order", hint):
                taken = request.value
                break
        await outlive.sleep("1h")
        return repr(taken)

    app = theatre.open()
    await app.start(taking, id="r")
    await theatre.post("r", "signal/one", Signal("order", b'{"order": "7"}', is_json=True))
    await theatre.has("r", SignalTaken)
    await theatre.crash(app)
    hint = Deletion
    theatre.pass_time(3600)
    app = theatre.open()

    with pytest.raises(ReplayMismatch) as met:
        await theatre.outcome(await app.start(taking, id="r"))
    assert "Refund" in met.value.recorded
    assert "Deletion" in met.value.code
    await theatre.crash(app)
    hint = Refund
    theatre.pass_time(3600)

    handle = await theatre.open().start(taking, id="r")
    assert "Refund(order='7')" == await theatre.outcome(handle)
    assert 1 == len(await theatre.events("r", SignalTaken))
