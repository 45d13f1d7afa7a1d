"""Answers at the door: shown, taken once, refused with the reason."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import pydantic
import pytest

import outlive
from outlive.errors import AnswerRefused, QuestionNotOpen, RunEnded, RunNotFound, TimedOut
from outlive.model.events import Answered, MailRead, Parked, QuestionClosed
from outlive.model.mail import Answer
from outlive.stores.types import Posted, Posting
from tests.harness.theatre import START_MS, Theatre
from tests.harness.world import pay


@dataclass
class Address:
    """What somebody is asked for."""

    street: str
    number: int


class Person(pydantic.BaseModel):
    """The same, of another make."""

    name: str


@outlive.flow
async def ask_number() -> int:
    number: int = await outlive.ask("How many?", type=int)
    return number + 1


@outlive.flow
async def ask_twice() -> list[str]:
    async def one(text: str) -> str:
        return str(await outlive.ask(text))

    return list(await asyncio.gather(one("First?"), one("Second?")))


@outlive.flow
async def ask_within() -> str:
    try:
        return str(await outlive.ask("Still there?", within="1h"))
    except TimedOut:
        await outlive.sleep("1d")
        return "timed out"


@outlive.flow
async def approving(name: str) -> str:
    approval = await outlive.approve(pay, name, by="boss", within="2d")
    return f"{approval.granted} {approval.by} {approval.note}"


async def test_a_question_is_shown_again_after_a_restart(theatre: Theatre) -> None:
    """Text, schema and id come from the journal, in any process, as often as asked for."""
    app = theatre.open()
    handle = await app.start(ask_number, id="r")
    await theatre.asked("r")
    (shown,) = await handle.questions()
    assert ("0/ask#1", "How many?", {"type": "integer"}) == (shown.id, shown.text, shown.schema)
    assert (None, None, None) == (shown.by, shown.until, shown.digest)
    assert START_MS <= shown.asked_at.timestamp() * 1000
    await theatre.crash(app)

    app = theatre.open()
    elsewhere = await app.get("r")
    assert [shown] == await elsewhere.questions()
    assert shown == await elsewhere.answer(41, by="ann")
    assert [] == await elsewhere.questions()

    assert 42 == await theatre.outcome(await app.start(ask_number, id="r"))
    (answered,) = await theatre.events("r", Answered)
    assert "ann" == answered.by


async def test_a_second_answer_is_refused(theatre: Theatre) -> None:
    """Before it is read, after it was read, and when both are given at once."""
    app = theatre.open()
    handle = await app.start(ask_twice, id="r")
    await theatre.until(lambda: _count(handle, 2))
    first, second = await handle.questions()
    answers = [handle.answer("x", first, by=f"p{number}") for number in range(5)]
    told = await asyncio.gather(*answers, return_exceptions=True)
    refused = [each for each in told if isinstance(each, QuestionNotOpen)]
    assert (4, 1) == (len(refused), len(told) - len(refused))
    await theatre.has("r", Answered)
    with pytest.raises(
        QuestionNotOpen,
        match=rf"run r: question {first.id} was answered by p\d; only the first answer counts; "
        rf"open: {second.id} “Second\?”",
    ):
        await handle.answer("y", first.id)
    await handle.answer("z")

    assert ["x", "z"] == await theatre.outcome(handle)


async def _count(handle: Any, wanted: int) -> bool:
    return len(await handle.questions()) == wanted


async def test_an_answer_that_nobody_has_read_yet_counts_already(stage: Theatre) -> None:
    """Though no worker drives the run."""
    app = stage.open()
    await app.start(ask_number, id="r")
    await stage.has("r", Parked)
    await stage.crash(app)
    handle = await stage.open().get("r")
    await handle.answer(1)

    assert [] == await handle.questions()
    with pytest.raises(QuestionNotOpen, match="run r asks nothing right now; `outlive show r`"):
        await handle.answer(2)
    with pytest.raises(
        QuestionNotOpen,
        match="question 0/ask#1 was answered; the answer waits to be read; nothing is asked right",
    ):
        await handle.answer(2, "0/ask#1")


async def test_several_questions_are_named(stage: Theatre) -> None:
    """Nobody guesses which one is meant."""
    handle = await stage.open().start(ask_twice, id="r")
    await stage.until(lambda: _count(handle, 2))

    with pytest.raises(
        QuestionNotOpen,
        match=r"run r asks 2 questions, name one .*; "
        r"open: 0.1/ask#1 “First\?”, 0.2/ask#1 “Second\?”",
    ):
        await handle.answer("x")
    with pytest.raises(QuestionNotOpen, match=r"run r: it never asked '0/ask#9'; open: 0\.1"):
        await handle.answer("x", "0/ask#9")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("many", r"\$: integer is wanted, not str"),
        (1.5, r"\$: integer is wanted, not float"),
        (None, r"\$: integer is wanted, not NoneType"),
        (object(), "it is not JSON: object has no JSON"),
    ],
)
async def test_an_answer_of_another_type_is_refused(
    stage: Theatre, value: object, why: str
) -> None:
    """Nothing is posted, the question stays, and the refusal says what is wanted."""
    handle = await stage.open().start(ask_number, id="r")
    await stage.asked("r")
    with pytest.raises(
        AnswerRefused,
        match=f"question 0/ask#1 refuses this answer: {why}; "
        "it stays open and wants a whole number",
    ):
        await handle.answer(value)
    await handle.answer(1)

    assert 2 == await stage.outcome(handle)
    assert [] == await stage.events("r", MailRead)


async def test_a_text_of_another_form_is_refused(stage: Theatre) -> None:
    """It never gets to the driver, which could only drop it."""

    @outlive.flow
    async def asking() -> str:
        return str(await outlive.ask("When?", type=date))

    handle = await stage.open().start(asking, id="r")
    await stage.asked("r")
    with pytest.raises(AnswerRefused, match=r"\$: a date like 2026-01-31 is wanted; it stays open"):
        await handle.answer("tomorrow")
    await handle.answer(date(2026, 2, 1))

    assert "2026-02-01" == await stage.outcome(handle)
    assert [] == await stage.events("r", MailRead)


@pytest.mark.parametrize(
    ("hint", "value", "wanted"),
    [
        (Address, Address("Elm", 3), "Address(street='Elm', number=3)"),
        (Address, {"street": "Elm", "number": 3}, "Address(street='Elm', number=3)"),
        (Person, Person(name="Ann"), "Person(name='Ann')"),
        (Any, {"a": [1]}, "{'a': [1]}"),
    ],
)
async def test_an_answer_may_be_an_object(
    stage: Theatre, hint: Any, value: object, wanted: str
) -> None:
    """It is posted as JSON, and comes to the flow as the type that it asks for."""

    @outlive.flow
    async def asking() -> str:
        return repr(await outlive.ask("Well?", type=hint))

    handle = await stage.open().start(asking, id="r")
    await stage.asked("r")
    await handle.answer(value)

    assert wanted == await stage.outcome(handle)


async def test_an_answer_that_only_the_driver_could_refuse_can_be_given_again(
    stage: Theatre,
) -> None:
    """It was read and changed nothing; the next one counts."""
    handle = await stage.open().start(ask_number, id="r")
    question = await stage.asked("r")
    (seq,) = [
        seq
        for seq, event in enumerate(await stage.events("r"), 1)
        if getattr(event, "question", "") == question.question
    ]
    await stage.post("r", f"answer/0/ask#1/{seq}", Answer("0/ask#1", b'"many"', "eve"))
    await stage.has("r", MailRead)
    await handle.answer(1)

    assert 2 == await stage.outcome(handle)


async def test_an_expired_question_is_closed_at_the_door(theatre: Theatre) -> None:
    """Whether or not somebody drives the run; a flow that went on takes no answer."""
    app = theatre.open()
    handle = await app.start(ask_within, id="r")
    await theatre.asked("r")
    (shown,) = await handle.questions()
    assert shown.until is not None
    assert timedelta(hours=1) == shown.until - shown.asked_at
    await theatre.crash(app)
    theatre.pass_time(3601)
    handle = await theatre.open().get("r")
    with pytest.raises(
        QuestionNotOpen,
        match=r"question 0/ask#1 of run r expired at 20\d\d-.*; its flow goes on without",
    ):
        await handle.answer("late")

    await theatre.open().start(ask_within, id="r")
    await theatre.has("r", QuestionClosed)
    with pytest.raises(
        QuestionNotOpen, match="0/ask#1 is closed: its flow no longer waits for an answer"
    ):
        await handle.answer("late", "0/ask#1")


async def test_an_ended_run_takes_no_answer(stage: Theatre) -> None:
    """The refusal says how it ended."""
    handle = await stage.open().start(ask_number, id="r")
    await stage.asked("r")
    await handle.answer(1)
    await stage.outcome(handle)

    with pytest.raises(
        RunEnded,
        match=r"run r has ended \(completed\): nothing can be sent to it any more; "
        "start another run, with another id",
    ):
        await handle.answer(1)


async def test_an_approval_is_shown_with_what_it_is_bound_to(theatre: Theatre) -> None:
    """Who should answer, until when, and the digest of the arguments; a plain yes is enough."""
    handle = await theatre.open().start(approving, "rent", id="r")
    await theatre.asked("r")
    (shown,) = await handle.questions()
    assert ("boss", "Approve pay(name='rent')?") == (shown.by, shown.text)
    assert shown.until == shown.asked_at + timedelta(days=2)
    assert shown.digest is not None
    with pytest.raises(AnswerRefused, match=r"wants yes or no, or an object {granted, \[note\]}"):
        await handle.answer("sure")
    await handle.answer({"granted": True, "note": "once"}, shown, by="boss")

    assert "True boss once" == await theatre.outcome(handle)


async def test_an_approval_shown_for_other_arguments_is_not_taken(stage: Theatre) -> None:
    """What was on the screen is what is answered, or nothing is."""
    handle = await stage.open().start(approving, "rent", id="r")
    await stage.asked("r")
    (shown,) = await handle.questions()
    stale = outlive.Question(
        id=shown.id,
        text=shown.text,
        schema=shown.schema,
        asked_at=shown.asked_at,
        by=shown.by,
        until=shown.until,
        digest="00",
    )
    with pytest.raises(
        QuestionNotOpen,
        match=r"run r asks 0/approve#1 anew, not as it was shown .*; look at it again before you",
    ):
        await handle.answer(True, stale)


async def test_nobody_is_asked_by_a_run_that_is_not_there(stage: Theatre) -> None:
    """A handle of a run that was deleted since says so."""
    handle = await stage.open().start(ask_number, id="r")

    async def send(run_id: str, mail_id: str, body: bytes) -> Posted:
        (said,) = await stage.store.post([Posting(run_id, mail_id, body)])
        return said

    missing = outlive.Handle(type(handle._letterbox)("x", stage.store, _at_once, stage.ports, send))

    with pytest.raises(RunNotFound, match="no run has the id 'x'"):
        await missing.questions()
    with pytest.raises(RunNotFound):
        await missing.cancel()


async def _at_once(work: Any) -> Any:
    return await work


async def test_a_question_can_be_waited_for(theatre: Theatre) -> None:
    """It comes as soon as it is asked, here or by a handle in another process."""
    app = theatre.open()
    handle = await app.start(ask_within, id="r")
    for each in (handle, await theatre.open().get("r")):
        waiting = asyncio.ensure_future(each.question())
        await theatre.until(waiting.done)
        assert "Still there?" == waiting.result().text
    await handle.answer("yes", waiting.result())
    over = asyncio.ensure_future(handle.question())
    await theatre.until(over.done)
    with pytest.raises(RunEnded, match="completed"):
        over.result()


async def test_a_question_that_does_not_come_is_told(stage: Theatre) -> None:
    """Whoever waits for it is not kept for ever."""

    @outlive.flow
    async def silent() -> None:
        await outlive.sleep("1h")

    handle = await stage.open().start(silent, id="r")
    waiting = asyncio.ensure_future(handle.question(timeout="1s"))
    await stage.until(waiting.done)
    with pytest.raises(TimedOut, match="run r asked nothing within 1s; `outlive show r`"):
        waiting.result()
