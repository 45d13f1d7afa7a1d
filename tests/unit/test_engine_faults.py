"""Errors, to the journal and back: live equals replay, and none says what another said."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import httpx
import openai
import pydantic
import pytest
from openai.types.chat import ChatCompletion

import outlive
from outlive import errors
from outlive.engine.definitions import registry
from outlive.engine.faults import declared, exception_of, fault_of
from outlive.errors import (
    DefinitionRefused,
    InDoubt,
    KeyTaken,
    NotHappened,
    OutliveError,
    RunFailed,
    StepFailed,
    TimedOut,
)
from outlive.journal.codec.codec import codec_for
from tests.harness.scene import Scene, live_and_replayed

CODEC = codec_for([], registry)
OURS = [each for each in vars(errors).values() if inspect.isclass(each)]


class BankError(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code, self.text = code, text


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


async def caught(scene: Scene, error: BaseException, **options: Any) -> list[Any]:
    """(type, args) that a flow catches when a step raises this, live and replayed."""

    @outlive.step(**options)
    async def breaking() -> int:
        raise error

    @outlive.flow
    async def catching() -> list[Any]:
        try:
            await breaking()
        except Exception as met:
            return [type(met).__name__, list(map(str, met.args)), str(met)]
        return []

    live, replayed = await live_and_replayed(scene, catching)
    assert live == replayed
    return live


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no good", 3),
        KeyError("gone"),
        ZeroDivisionError(),
        FileNotFoundError(2, "not here"),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"),
        TimeoutError("late"),
        StopAsyncIteration(),
        TimedOut("a limit"),
        NotHappened("nothing"),
        InDoubt("0/pay#1", "key", "why"),
        KeyTaken("key", "holder", "wanted"),
        StepFailed("Inner", "text"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_errors_that_everybody_knows_come_back(scene: Scene, error: Exception) -> None:
    """Built-in ones and ours, with their arguments and their text."""
    name, _, text = await caught(scene, error)

    assert [name, text] == [type(error).__name__, str(error)]


async def test_declared_errors_come_back(scene: Scene) -> None:
    """raises= names the types that the flow wants to catch."""
    got = await caught(scene, BankError(7, "closed"), raises=(BankError,))

    assert got[:2] == ["BankError", ["7", "closed"]]


class ApiError(Exception):
    def __init__(self, status: Any) -> None:
        super().__init__(f"HTTP {status}")


class NoCover(BankError):
    """One of a bank's errors."""


async def test_a_declared_error_never_says_something_else(scene: Scene) -> None:
    """Also if its type makes another text of its arguments: it is not made from them."""
    name, _, text = await caught(scene, ApiError(404), raises=(ApiError,))

    assert [name, text] == ["ApiError", "HTTP 404"]


REQUEST = httpx.Request("POST", "http://localhost/v1")
MADE_BY_OPENAI = openai.DefaultHttpxClient().build_request("POST", str(REQUEST.url))
#: Their constructors take requests and responses, which can't be recorded.
OF_CLIENTS = [
    httpx.HTTPStatusError("503 Busy", request=REQUEST, response=httpx.Response(503)),
    httpx.ConnectTimeout("no connection", request=REQUEST),
    openai.APITimeoutError(request=MADE_BY_OPENAI),
    openai.LengthFinishReasonError(completion=ChatCompletion.model_construct(usage=None)),
]


@pytest.mark.parametrize("error", OF_CLIENTS, ids=lambda error: type(error).__name__)
async def test_errors_of_http_clients_come_back_when_declared(
    scene: Scene, error: Exception
) -> None:
    """As themselves, live and on replay, though their constructors take other things."""
    name, _, text = await caught(scene, error, raises=(type(error),))

    assert [name, text] == [type(error).__name__, str(error)]


@pytest.mark.parametrize(("base", "name"), [(BankError, "NoCover"), (Exception, "StepFailed")])
async def test_what_is_derived_from_a_declared_error_comes_back(
    scene: Scene, base: type[Exception], name: str
) -> None:
    """As itself, if it was there when the step was declared; not with what is built in."""
    got = await caught(scene, NoCover(7, "closed"), raises=(base,))

    assert got[0] == name


async def test_an_error_that_came_to_be_after_its_step_is_told_by_name(scene: Scene) -> None:
    """A body's own import is not there on replay: the flow must see the same."""

    @outlive.step(raises=(BankError,))
    async def bad() -> None:
        late: Any = type("Late", (BankError,), {})
        raise late(7, "closed")

    @outlive.flow
    async def flow() -> str:
        try:
            await bad()
        except Exception as error:
            return type(error).__name__
        return ""

    live, replayed = await live_and_replayed(scene, flow)

    assert live == replayed == "StepFailed"


async def test_declared_errors_of_one_name_are_told_apart(scene: Scene) -> None:
    """By their modules; a third that nobody declared comes back as none of them."""
    one, other, third, twin = (
        type("Broken", (Exception,), {"__module__": module}) for module in ("a", "b", "c", "a")
    )
    seen = []

    @outlive.step(raises=(one, other))
    async def bad(which: int) -> None:
        raise (one, other, third, twin)[which]("x")

    @outlive.flow
    async def flow() -> None:
        for which in range(4):
            try:
                await bad(which)
            except Exception as error:
                seen.append(type(error))

    await scene.run(flow)
    assert seen == [one, other, StepFailed, StepFailed]


async def test_undeclared_errors_are_told_by_name(scene: Scene) -> None:
    """Live as on replay: no type is looked up by a name found in data."""
    name, args, text = await caught(scene, BankError(7, "closed"))

    assert name == "StepFailed"
    assert "BankError" in text
    assert len(args) == 1


async def test_a_foreign_error_is_not_taken_for_a_built_in_one(scene: Scene) -> None:
    """Some libraries name theirs like Python's: they are other types all the same."""
    foreign = type("ConnectionError", (Exception,), {})

    name, _, text = await caught(scene, foreign("refused"))

    assert name == "StepFailed"
    assert "ConnectionError" in text


async def test_a_foreign_error_is_not_taken_for_a_declared_one(scene: Scene) -> None:
    """A type of the same name from elsewhere was not declared."""
    foreign = type("BankError", (Exception,), {"__module__": "elsewhere"})

    name, _, _ = await caught(scene, foreign(1, "x"), raises=(BankError,))

    assert name == "StepFailed"


class Odd(Exception):
    def __init__(self, *, reason: str) -> None:
        super().__init__(object())
        self.reason = reason

    def __str__(self) -> str:
        return f"odd: {self.reason}"


class Bare(Exception):
    """Its text is made of an argument that can't be recorded."""


class Slotted(Exception):
    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        self.code = code

    def __str__(self) -> str:
        return f"code {self.code}"


class Lost(OSError):
    def __init__(self, path: str) -> None:
        super().__init__(2, "lost", path)


class Picky(Exception):
    def __new__(cls, code: int, text: str) -> Picky:
        return super().__new__(cls, code, text)

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")


class Remote(Exception):
    """It makes its text, and itself, of what can't be recorded."""

    def __init__(self, response: object) -> None:
        self.response = response
        super().__init__(response)

    def __str__(self) -> str:
        return f"from {type(self.response).__name__}"


#: None of them is made from its ``args``.
OF_USERS = [Odd(reason="why"), Slotted(3), Lost("/x"), Picky(3, "x"), Remote(REQUEST)]


@pytest.mark.parametrize("error", OF_USERS, ids=lambda error: type(error).__name__)
async def test_a_declared_error_comes_back_whatever_its_constructor_takes(
    scene: Scene, error: Exception
) -> None:
    """As itself, and says the same, even where it says it of what can't be recorded."""
    name, _, text = await caught(scene, error, raises=(type(error),))

    assert [name, text] == [type(error).__name__, str(error)]


async def test_an_argument_that_cannot_be_recorded_is_told_by_its_text(scene: Scene) -> None:
    """The error comes back, with its text instead of what it was made from."""
    given = object()

    assert ["Bare", [str(given)], str(given)] == await caught(scene, Bare(given), raises=(Bare,))


def test_what_an_error_has_comes_back() -> None:
    """What was set on it later, slots and a file's name; and nothing in a wrong place."""
    late = BankError(7, "closed")
    late.account = "A-1"  # type: ignore[attr-defined]
    restored: Any = made_again(late)
    assert ("A-1", (7, "closed")) == (restored.account, restored.args)
    assert 3 == made_again(Slotted(3)).code
    assert (2, "/x") == (made_again(Lost("/x")).errno, made_again(Lost("/x")).filename)
    late_answer = made_again(openai.APITimeoutError(request=MADE_BY_OPENAI))
    assert not hasattr(late_answer, "request"), "its constructor would take the text for it"


def made_again(error: BaseException) -> Any:
    """What a flow gets if a step declares and raises this."""
    own = declared((type(error),))
    return exception_of(fault_of(error, CODEC, own), own, CODEC)


@pytest.mark.parametrize("cls", [pydantic.ValidationError, type("Group", (ExceptionGroup,), {})])
def test_an_error_that_nobody_can_make_again_is_not_declared(cls: type[Exception]) -> None:
    """The refusal says what to do instead."""

    async def body() -> None: ...

    with pytest.raises(DefinitionRefused) as refused:
        outlive.step(raises=(cls,))(body)
    assert f"{cls.__qualname__} can be made again from a record" in str(refused.value)
    assert "catch errors.StepFailed" in str(refused.value)


async def test_an_effects_error_comes_back_like_a_steps(scene: Scene) -> None:
    """What is declared to mean "nothing happened" reaches the flow with its type."""

    @outlive.effect(not_happened=(BankError,), raises=(BankError,))
    async def pay() -> None:
        raise BankError(3, "no cover")

    @outlive.flow
    async def paying() -> list[Any]:
        try:
            await pay()
        except BankError as error:
            return [error.code, error.text]
        return []

    live, replayed = await live_and_replayed(scene, paying)

    assert live == replayed == [3, "no cover"]
