"""What can be declared a step or an effect, and what is refused at the decorator."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

import outlive
from outlive.errors import DefinitionRefused
from outlive.model.events import EffectDone
from tests.unit.scene import Scene


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"doubt": "guess"}, "one of"),
        ({"doubt": "check"}, "needs a check"),
        ({"timeout": "soon"}, "no duration"),
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
        ({"timout": "1s"}, "has no option 'timout'; did you mean timeout"),
        ({"transacton": True}, "has no option 'transacton'"),
        ({"key": "k"}, "key, check, undo and doubt are for @outlive.effect"),
        ({"transaction": True, "undo": print}, "has no option 'undo'"),
        ({"transaction": "no"}, "it is True or False"),
        ({"retry": 5}, r"write outlive\.Retry"),
        ({"raises": OSError}, r"write \(OSError,\)"),
        ({"raises": ("OSError",)}, "'OSError' is none"),
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
