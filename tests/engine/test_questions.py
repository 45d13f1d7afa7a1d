"""Questions to people: typed answers, each once, shown as long as the flow waits."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
import pydantic
import pytest

import outlive
from outlive.engine import people
from outlive.errors import DefinitionRefused, NotApproved, ReplayMismatch, TimedOut
from outlive.model.events import (
    Answered,
    EffectIntended,
    MailRead,
    Parked,
    QuestionAsked,
    QuestionClosed,
    TimerFired,
)
from outlive.model.ids import digest
from outlive.model.mail import Answer
from tests.harness.theatre import START_MS, Theatre
from tests.harness.world import pay, world


@dataclass
class Address:
    street: str
    number: int


class Person(pydantic.BaseModel):
    name: str
    age: int = pydantic.Field(ge=0)


def asking(hint: Any) -> Any:
    @outlive.flow(name="asking")
    async def flow() -> str:
        return repr(await people.ask("Well?", type=hint))

    return flow


@outlive.flow
async def ask_number() -> int:
    number: int = await people.ask("How many?", type=int)
    return number + 1


@outlive.flow
async def ask_within() -> str:
    try:
        return str(await people.ask("Still there?", within="1h"))
    except TimedOut:
        return "timed out"


@outlive.flow
async def approving(name: str) -> str:
    approval = await people.approve(pay, name, by="boss", within="2d")
    if approval.granted:
        await pay(name)
    return f"{approval.granted} {approval.by} {approval.at.isoformat()} {approval.note}"


CASES = [
    (int, b"7", "7"),
    (str, b'"yes"', "'yes'"),
    (bool, b"false", "False"),
    (Literal["red", "blue"], b'"red"', "'red'"),
    (list[int], b"[1, 2]", "[1, 2]"),
    (int | None, b"null", "None"),
    (Any, b'{"a": [1]}', "{'a': [1]}"),
    (Address, b'{"street": "Elm", "number": 3}', "Address(street='Elm', number=3)"),
    (Person, b'{"name": "Ann", "age": 30}', "Person(name='Ann', age=30)"),
    (list[Person], b'[{"name": "Ann", "age": 30}]', "[Person(name='Ann', age=30)]"),
]


@pytest.mark.parametrize(("hint", "json", "wanted"), CASES, ids=[str(case[0]) for case in CASES])
async def test_an_answer_has_the_type_that_was_asked_for(
    stage: Theatre, hint: Any, json: bytes, wanted: str
) -> None:
    """Built in, dataclass or pydantic; the schema of the answer is in the journal."""
    handle = await stage.open().start(asking(hint), id="r")
    question = await stage.asked("r")
    await stage.answer("r", question.question, json)

    assert wanted == await stage.outcome(handle)
    if hint is Any:
        assert b"" == question.schema
    else:
        assert isinstance(msgspec.json.decode(question.schema), dict)


async def test_a_question_is_shown_until_it_is_answered(theatre: Theatre) -> None:
    """It costs no memory, is asked once, and is still there after a restart, under its id."""
    app = theatre.open()
    await app.start(ask_number, id="r")
    question = await theatre.asked("r")
    assert ("0/ask#1", "How many?") == (question.question, question.text)
    assert {"type": "integer"} == msgspec.json.decode(question.schema)
    await theatre.has("r", Parked)
    await theatre.crash(app)

    app = theatre.open()
    handle = await app.start(ask_number, id="r")
    await app.nudge("r", "look again")
    await theatre.has("r", MailRead)
    assert {"0/ask#1"} == set((await theatre.fold("r")).questions)
    await theatre.answer("r", "0/ask#1", b"41", by="bob")

    assert 42 == await theatre.outcome(handle)
    assert 1 == len(await theatre.events("r", QuestionAsked))
    (answered,) = await theatre.events("r", Answered)
    assert "bob" == answered.by
    assert {} == (await theatre.fold("r")).questions


async def test_a_second_or_stale_answer_changes_nothing(theatre: Theatre) -> None:
    """The same id is refused by the store; another id is read and dropped, with the reason."""

    @outlive.flow
    async def twice() -> list[int]:
        return [await people.ask("One?", type=int), await people.ask("Two?", type=int)]

    handle = await theatre.open().start(twice, id="r")
    await theatre.asked("r")
    assert "posted" == await theatre.answer("r", "0/ask#1", b"1")
    assert "already" == await theatre.answer("r", "0/ask#1", b"9")
    await theatre.post("r", "answer/again", Answer("0/ask#1", b"9", "eve"))
    await theatre.post("r", "answer/early", Answer("0/ask#7", b"9", "eve"))
    await theatre.has("r", MailRead, 2)
    await theatre.answer("r", "0/ask#2", b"2")

    assert [1, 2] == await theatre.outcome(handle)
    whys = {event.why for event in await theatre.events("r", MailRead)}
    assert {"nobody waits for this answer"} == whys


@pytest.mark.parametrize("json", [b'"many"', b"{", b"", b"1.5"])
async def test_an_answer_of_another_type_does_not_reach_the_flow(
    stage: Theatre, json: bytes
) -> None:
    """A slip of the pen is refused with the reason; the question stays and can be answered."""
    handle = await stage.open().start(ask_number, id="r")
    await stage.asked("r")
    await stage.answer("r", "0/ask#1", json)
    refused = await stage.has("r", MailRead)
    assert refused.why.startswith("refused: ")
    assert "0/ask#1" in (await stage.fold("r")).questions
    await stage.post("r", "answer/0/ask#1/2", Answer("0/ask#1", b"1", "ann"))

    assert 2 == await stage.outcome(handle)


async def test_a_type_that_no_answer_can_have_is_refused_at_once(stage: Theatre) -> None:
    """Better than a question that nobody can ever answer."""

    class Opaque:
        pass

    @outlive.flow
    async def hopeless() -> str:
        try:
            await people.ask("What?", type=Opaque)
        except DefinitionRefused as error:
            return str(error)
        return "asked"

    assert "Opaque" in await stage.outcome(await stage.open().start(hopeless, id="r"))
    assert [] == await stage.events("r", QuestionAsked)


async def test_the_limit_of_a_question_passes(theatre: Theatre) -> None:
    """The flow is told, the question is closed, and a late answer changes nothing."""
    handle = await theatre.open().start(ask_within, id="r")
    await theatre.asked("r")
    await theatre.has("r", QuestionClosed, step=60)
    await theatre.answer("r", "0/ask#1", b'"late"')

    assert "timed out" == await theatre.outcome(handle)
    assert {} == (await theatre.fold("r")).questions


async def test_an_approval_says_who_when_and_what(theatre: Theatre) -> None:
    """It is bound to the effect's arguments, which the question shows."""
    handle = await theatre.open().start(approving, "rent", id="r")
    question = await theatre.asked("r")
    assert "Approve pay(name='rent')?" == question.text
    assert "boss" == question.by
    bound = pay.definition.bind("rent")
    assert digest(pay.definition.encode_args(bound)) == question.digest
    theatre.pass_time(3600)
    await theatre.answer("r", question.question, b'{"granted": true, "note": "once"}', by="boss")

    granted, by, at, why = (await theatre.outcome(handle)).split(" ")
    assert ("True", "boss", "once") == (granted, by, why)
    (answered,) = await theatre.events("r", Answered)
    began = (await theatre.fold("r")).start.started_at
    assert began == START_MS
    assert datetime.fromtimestamp((began + answered.at) / 1000, UTC) == datetime.fromisoformat(at)
    assert ["rent"] == world.ran


@pytest.mark.parametrize("json", [b"false", b'{"granted": false}'])
async def test_what_is_not_granted_is_not_done(stage: Theatre, json: bytes) -> None:
    """A plain no is enough."""
    handle = await stage.open().start(approving, "rent", id="r")
    question = await stage.asked("r")
    await stage.answer("r", question.question, json)

    assert (await stage.outcome(handle)).startswith("False ann")
    assert [] == world.ran


async def test_an_approval_is_not_taken_for_other_arguments(theatre: Theatre) -> None:
    """If the code changes between question and answer, what it would do now is asked anew."""
    amount = "10"

    @outlive.flow
    async def shifty() -> bool:
        approval = await people.approve(pay, amount)
        if approval.granted:
            await pay(amount)
        return approval.granted

    app = theatre.open()
    await app.start(shifty, id="r")
    question = await theatre.asked("r")
    await theatre.crash(app)
    amount = "1000"
    await theatre.answer("r", question.question, b"true")
    handle = await theatre.open().start(shifty, id="r")

    await theatre.has("r", QuestionAsked, 2)
    await theatre.has("r", MailRead)
    assert [] == world.ran
    assert [] == await theatre.events("r", Answered)
    await theatre.answer("r", "0/approve#1~2", b"false")

    assert not await theatre.outcome(handle)
    assert [] == world.ran


async def test_a_question_that_the_code_no_longer_asks_is_a_mismatch(stage: Theatre) -> None:
    """An answer must not be kept from a question, nor a question from its answer."""
    asks = True

    @outlive.flow
    async def fickle() -> str:
        if asks:
            return str(await people.ask("Well?"))
        return str(await people.wait_signal("s", str))

    app = stage.open()
    await app.start(fickle, id="r")
    await stage.asked("r")
    await stage.crash(app)
    asks = False
    await stage.answer("r", "0/ask#1", b'"x"')
    handle = await stage.open().start(fickle, id="r")

    with pytest.raises(ReplayMismatch, match="question 0/ask#1"):
        await stage.outcome(handle)


async def test_an_answer_that_todays_type_can_not_hold_stops_the_run(stage: Theatre) -> None:
    """The code changed under a recorded answer: the run keeps its place, it does not fail."""
    hint: Any = int

    @outlive.flow
    async def retyped() -> str:
        answer = await people.ask("Well?", type=hint)
        await outlive.sleep("1h")
        return repr(answer)

    app = stage.open()
    await app.start(retyped, id="r")
    await stage.asked("r")
    await stage.answer("r", "0/ask#1", b"5")
    await stage.has("r", Parked, 2)
    await stage.crash(app)
    hint = bool
    stage.pass_time(3600)
    handle = await stage.open().start(retyped, id="r")
    with pytest.raises(ReplayMismatch, match=r"integer.*boolean"):
        await stage.outcome(handle)

    hint = int
    stage.pass_time(120)
    assert "5" == await stage.outcome(await stage.open().start(retyped, id="r"))


async def test_questions_of_many_branches_are_answered_in_any_order(theatre: Theatre) -> None:
    """Each under its own id; a branch that is cancelled closes its own."""

    @outlive.flow
    async def survey() -> list[str]:
        async def one(name: str) -> str:
            try:
                return f"{name} {await people.ask(name, type=str, within='1d')}"
            except TimedOut:
                return f"{name} nothing"

        return list(await asyncio.gather(*(one(name) for name in "abc")))

    handle = await theatre.open().start(survey, id="r")
    await theatre.has("r", QuestionAsked, 3)
    by_text = {each.text: each.question for each in await theatre.events("r", QuestionAsked)}
    await theatre.answer("r", by_text["c"], b'"third"')
    await theatre.has("r", Answered)
    await theatre.answer("r", by_text["a"], b'"first"')
    await theatre.has("r", Answered, 2)
    theatre.pass_time(86400)

    assert ["a first", "b nothing", "c third"] == await theatre.outcome(handle)
    assert 1 == len(await theatre.events("r", QuestionClosed))
    assert 1 == len(await theatre.events("r", TimerFired))


async def test_an_approval_shows_what_counts(stage: Theatre) -> None:
    """Not what the effect ignores, and not a book; it is bound to all of it."""

    @outlive.effect(ignore=("client",))
    async def send(client: object, text: str) -> None: ...

    @outlive.flow
    async def sending() -> bool:
        return (await people.approve(send, object(), "x" * 50_000)).granted

    handle = await stage.open().start(sending, id="r")
    question = await stage.asked("r")
    assert "client" not in question.text
    assert len(question.text) < 3_000
    await stage.answer("r", question.question, b"true")
    assert await stage.outcome(handle)


@outlive.flow
async def spending(calls: list[str]) -> list[str]:
    """Asks once, then calls as it likes."""
    approval = await people.approve(pay, "rent")
    done = [f"{approval.granted}"]
    for name in calls:
        try:
            done.append(await pay(name))
        except NotApproved as error:
            done.append(f"no {error.step}")
    return done


@pytest.mark.parametrize(
    ("answer", "calls", "done"),
    [
        (b"true", ["rent"], ["True", "rent"]),
        (b"true", ["rent", "rent"], ["True", "rent", "no 0/pay#2"]),
        (b"true", ["fine", "rent"], ["True", "no 0/pay#1", "rent"]),
        (b"false", ["rent", "fine"], ["False", "no 0/pay#1", "no 0/pay#2"]),
    ],
)
async def test_a_yes_is_for_one_call_with_these_arguments(
    theatre: Theatre, answer: bytes, calls: list[str], done: list[str]
) -> None:
    """Live as on replay, whoever drives: another call is refused before it begins."""
    app = theatre.open()
    await app.start(spending, calls, id="r")
    question = await theatre.asked("r")
    await theatre.crash(app)
    await theatre.answer("r", question.question, answer)
    app = theatre.open()
    assert done == await theatre.outcome(await app.start(spending, calls, id="r"))
    intended = await theatre.events("r", EffectIntended)
    assert sum(not each.startswith(("no", "True", "False")) for each in done) == len(intended)
