"""What can be declared a step or an effect, and what is refused at the decorator."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

import outlive
from outlive.errors import DefinitionRefused
from outlive.model.events import EffectDone
from tests.harness.scene import Scene


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"doubt": "guess"}, "one of"),
        ({"doubt": "check"}, "needs a check"),
        ({"timeout": "soon"}, "not a duration"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": None}, "every effect has a limit"),
        ({"timeout": "1ms"}, "at least 10 ms"),
        ({"name": "a/b"}, "can't be a name"),
    ],
)
def test_impossible_effects_are_refused(options: dict[str, Any], words: str) -> None:
    """At the decorator, with what is wrong."""

    async def pay() -> None: ...

    with pytest.raises(DefinitionRefused, match=words):
        outlive.effect(**options)(pay)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"check": "find"}, "its check is 'find', which can't be called"),
        ({"undo": 5}, "its undo is 5, which can't be called"),
        ({"key": 5}, "key=5 is neither a template nor a function"),
        ({"key": "pay:{oder}"}, "names 'oder', which is no argument of it; it has order, cents"),
        ({"key": "pay:{}"}, "names ''"),
        ({"key": "pay:{order:{width}}"}, "names 'width'"),
        ({"key": "pay:{order"}, "is no template"),
        ({"key": lambda order: order}, "can't be called with all of its arguments"),
        ({"check": lambda oder: oder}, "its check wants 'oder', .*it can have order, cents, key"),
        ({"check": lambda order, /: order}, "'order' by position only"),
        ({"check": lambda outcome: outcome}, "its check wants 'outcome'"),
        ({"undo": lambda oder: oder}, "can have order, cents, key, outcome"),
    ],
)
def test_what_stands_beside_an_effect_is_looked_at(options: dict[str, Any], words: str) -> None:
    """Or its first call would find the mistake, when something has gone wrong."""

    async def pay(order: str, cents: int) -> None: ...

    with pytest.raises(DefinitionRefused, match=f"pay: .*{words}"):
        outlive.effect(**options)(pay)


@pytest.mark.parametrize(
    "options",
    [
        {"key": "pay:{order.id}:{cents:>{cents}}"},
        {"key": "pay:{order[id]}"},
        {"key": "pay:{order}".format},
        {"key": lambda **given: "k"},
        {"key": lambda order, cents, currency="EUR": "k"},
        {"check": lambda key, order, deep=False, *args, **kwargs: None},
        {"undo": lambda outcome, key, cents: None},
        {"undo": outlive.effect(lambda order: None, name="take back")},
        {"check": outlive.step(lambda cents: None, name="look")},
    ],
)
def test_what_asks_for_what_there_is_may_stand_beside_an_effect(options: dict[str, Any]) -> None:
    """Some of it, all of it, more with a default."""

    async def pay(order: Any, cents: int) -> None: ...

    assert outlive.effect(**options)(pay).plain is pay


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timout": "1s"}, "has no option 'timout'; did you mean timeout"),
        ({"transacton": True}, "has no option 'transacton'"),
        ({"key": "k"}, "key, check, undo and doubt are for @outlive.effect"),
        ({"transaction": True, "undo": print}, "has no option 'undo'"),
        ({"transaction": "no"}, "it is True or False"),
        ({"retry": 5}, r"write outlive\.Retry"),
        ({"raises": OSError}, r"write \(OSError,\)"),
        ({"raises": ("OSError",)}, "'OSError' is not one"),
    ],
)
def test_what_is_misspelt_is_refused(options: dict[str, Any], words: str) -> None:
    """Also for options that only another decorator has."""

    async def look(connection: Any) -> None: ...

    with pytest.raises(DefinitionRefused, match=words):
        outlive.step(**options)(look)


def test_a_misspelt_option_of_a_flow_is_refused() -> None:
    """And of an effect, whose errors are classes, too."""
    with pytest.raises(DefinitionRefused, match="did you mean deadline"):
        outlive.flow(deadlin="1h")
    with pytest.raises(DefinitionRefused, match=r"not_happened= .*write \(OSError,\)"):
        outlive.effect(not_happened=OSError)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "\U0001f989" * 151}, "can't be a name: .*at most 600 bytes in UTF-8"),
        ({"version": "\U0001f989" * 151}, "version=.*at most 600 bytes in UTF-8"),
        ({"version": "v" * 201}, "no text of 1 to 200 characters"),
        ({"version": "a\0b"}, "no NUL"),
    ],
)
def test_names_and_versions_that_no_store_keeps_are_refused(
    options: dict[str, Any], words: str
) -> None:
    """At the decorator: later they would stop the commits of everybody's runs."""

    async def look() -> None: ...

    with pytest.raises(DefinitionRefused, match=words):
        outlive.flow(**options)(look)


async def test_what_can_be_called_can_be_a_step(scene: Scene) -> None:
    """Partial functions and objects, async or plain, once they have a name."""

    async def add(one: int, other: int) -> int:
        return one + other

    class Adder:
        async def __call__(self, number: int) -> int:
            return number + 1

    partly = outlive.step(partial(add, 1), name="partly")
    wholly = outlive.step(Adder(), name="wholly")

    @outlive.flow
    async def adding() -> list[int]:
        return [await partly(2), await wholly(3)]

    with pytest.raises(DefinitionRefused, match="name="):
        outlive.step(partial(add, 1))
    assert await scene.run(adding) == [3, 4]


async def test_outcomes_of_effects_carry_how_they_are_known(scene: Scene) -> None:
    """Here: from the body itself."""

    @outlive.effect
    async def pay() -> int:
        return 1

    @outlive.flow
    async def paying() -> int:
        return await pay()

    handle = await scene.open().start(paying, id="r")
    await scene.outcome(handle)

    (done,) = await scene.events(handle, EffectDone)
    assert done.by == ""


@pytest.mark.parametrize("kind", ["step", "effect", "flow"])
def test_methods_are_refused_where_they_are_decorated(kind: str) -> None:
    """Called on an object, they would take its first argument for it."""

    async def say(self: Any, text: str = "") -> str:
        return text

    say.__qualname__ = "Bot.say"
    said = getattr(outlive, kind)(say)

    # Until Python 3.12 it comes wrapped in a RuntimeError.
    with pytest.raises((DefinitionRefused, RuntimeError)) as refused:
        type("Bot", (), {"say": said})
    error = refused.value.__cause__ or refused.value
    assert isinstance(error, DefinitionRefused)
    assert f"decorate the bound method, outlive.{kind}(obj.say)" in str(error)


class Bot:
    """What may be decorated of a class, and be kept in one."""

    def __init__(self, greeting: str) -> None:
        self.greeting = greeting

    async def say(self, name: str) -> str:
        return f"{self.greeting} {name}"

    async def talk(self) -> list[str]:
        say, pay = outlive.step(self.say), outlive.effect(self.say, name="pay")
        return [await say("ann"), await pay("bob"), await self.shout("cy"), await self.hum("di")]

    @outlive.step
    @staticmethod
    async def shout(name: str) -> str:
        return name.upper()

    @staticmethod
    @outlive.step
    async def hum(name: str) -> str:
        return f"{name}..."


async def test_bound_methods_and_static_ones_can_be_decorated(scene: Scene) -> None:
    """They need no object when they are called."""
    talk = outlive.flow(Bot("hello").talk)

    assert await scene.run(talk) == ["hello ann", "hello bob", "CY", "di..."]


async def test_wrong_arguments_are_told_with_what_was_called(scene: Scene) -> None:
    """As Python tells it of a function."""

    @outlive.step(name="look up")
    async def look(order: str) -> None: ...

    @outlive.flow
    async def looking(order: str) -> str:
        try:
            await look(odrer=order)  # type: ignore[call-arg]
        except TypeError as error:
            return str(error)
        return ""

    with pytest.raises(TypeError, match=r"looking\(\) missing 1 required positional argument"):
        await scene.run(looking)
    assert await scene.run(looking, "7") == ("look up() got an unexpected keyword argument 'odrer'")
