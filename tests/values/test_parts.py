"""Big texts and bytes stand by themselves, and every value comes back as it was."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date
from enum import StrEnum
from typing import Any

import msgspec
import pytest

from outlive.errors import ValueRefused
from outlive.journal.codec.parts import LEAF_MIN, LeafMemo, Parted, part, references, whole
from outlive.model.events import StepDone, encode_events
from outlive.model.ids import digest
from tests.values.generate import Maker
from tests.values.specimens import Order, Point, codec, identical

SEED = 20_270_101
ALL = codec()

Figure = Callable[[str, object], None]


def big(rng: random.Random) -> str | bytes:
    """A leaf, or something that is just too short for one."""
    size = rng.choice((LEAF_MIN - 1, LEAF_MIN, LEAF_MIN + 1, 3 * LEAF_MIN))
    text = rng.choice("aäβ") * size
    return text if rng.random() < 0.7 else text.encode()


def grown(maker: Maker) -> Any:
    """A random value with leaves in some of its places."""
    rng = maker.rng
    leaf, other, value = big(rng), big(rng), maker.value()
    message = {"role": "user", "content": big(rng)}
    return rng.choice(
        (
            leaf,
            [leaf, value, other],
            {"a": leaf, "b": [other, value], "c": other},
            (leaf, (other,)),
            {leaf, other},
            frozenset((leaf, 1)),
            {leaf: other, 2: value},
            Order(leaf, [other, value]),
            Point(other, [leaf]),
            [message, {"role": "tool", "content": value}] * 6,
            [dict(message) for _ in range(20)],
            bytearray(600),
        )
    )


def test_values_with_leaves_come_back_identical(full: bool, figure: Figure) -> None:
    """Parted at once, parted from whole bytes, made whole again: always the same value."""
    count = 50_000 if full else 4_000
    maker, parted = Maker(SEED), 0

    for n in range(count):
        value = grown(maker)
        form, encoded = ALL.write(value), ALL.encode(value)
        later = part(encoded)
        assert identical(value, ALL.decode(form)), (SEED, n)
        assert bytes(form) == bytes(later), (SEED, n)
        assert encoded == whole(form) == whole(later), (SEED, n)
        if type(form) is Parted:
            parted += 1
            assert references(form) == form.leaves.keys() == _leaves(later).keys(), (SEED, n)

    figure("values: generated values with leaves that came back identical", f"{count} ({parted})")


def _leaves(raw: bytes) -> dict[bytes, Any]:
    return dict(raw.leaves) if type(raw) is Parted else {}


class Word(StrEnum):
    """Equal to a text, and none."""

    LONG = "a" * LEAF_MIN


TWINS: list[Any] = [
    "a" * LEAF_MIN,
    b"a" * LEAF_MIN,
    ["a" * LEAF_MIN],
    ("a" * LEAF_MIN,),
    {"a" * LEAF_MIN},
    {"k": "a" * LEAF_MIN},
    {"a" * LEAF_MIN: "k"},
    [["k", "a" * LEAF_MIN]] * 8,
    [{"k": "a" * LEAF_MIN}] * 8,
    [{"k": b"a" * LEAF_MIN}] * 8,
    [("k", "a" * LEAF_MIN)] * 8,
    [{"k": "a" * LEAF_MIN, "l": ""}] * 8,
    [{"k": "", "l": "a" * LEAF_MIN}] * 8,
    [{"l": "", "k": "a" * LEAF_MIN}] * 8,
]


def test_twins_are_never_taken_for_one_another() -> None:
    """What looks alike has bytes of its own, in whatever order it is met."""
    rng = random.Random(SEED)
    for _ in range(20):
        fresh = codec()
        rng.shuffle(TWINS)
        forms = [bytes(fresh.write(value)) for value in TWINS]
        assert len(set(forms)) == len(TWINS)
        assert forms == [bytes(codec().write(value)) for value in TWINS]


def test_what_equals_a_text_is_refused_though_the_text_is_known() -> None:
    """A member of a StrEnum is no text, even where the text itself was met before."""
    fresh = codec()
    fresh.write([{"k": str(Word.LONG)}] * 8)

    with pytest.raises(ValueRefused):
        fresh.write([{"k": Word.LONG}] * 8)


def test_a_list_changed_in_place_is_written_as_it_is_now() -> None:
    """Nothing is believed to be as it was last time but texts, which can't change."""
    messages: list[Any] = [{"role": "user", "content": "x" * 600} for _ in range(20)]
    first = ALL.write(messages)
    messages[3]["content"] = "y" * 600
    messages[4]["role"] = "tool"
    second = ALL.write(messages)

    assert "x" * 600 == ALL.decode(first)[3]["content"]
    assert ("y" * 600, "tool") == (ALL.decode(second)[3]["content"], ALL.decode(second)[4]["role"])


class Odd(dict[str, str]):
    """Equals a dict, and is none."""


def change(messages: list[Any], rng: random.Random) -> None:
    """In place, as a program might, or nobody ever would."""
    at, text = rng.randrange(len(messages)), rng.choice("xyz") * rng.choice((3, 700))
    message = messages[at]
    match rng.randrange(9):
        case 0 | 1:
            messages.append({"role": "user", "content": text})
        case 2:
            messages[at] = dict(reversed(message.items()))
        case 3:
            message["content"] = text
        case 4:
            messages[at : at + 2] = [{**message, "name": text}, {"role": "user"}]
        case 5 if len(messages) > 9:
            del messages[rng.choice((0, at))]
        case 6:
            messages[at] = {"role": "user", "content": [text]}
        case 7:
            messages.insert(at, {"content": text, "n": 1})
        case _:
            messages[at] = {"role": "user", "content": text}


def test_a_list_that_is_known_is_written_like_one_that_is_not() -> None:
    """Whatever became of it since: the same bytes, and the same leaves."""
    rng, known = random.Random(SEED), codec()
    messages: list[Any] = [{"role": "user", "content": f"{n}" * 600} for n in range(9)]
    for _ in range(600):
        change(messages, rng)
        one, other = known.write(messages), codec().write(messages)
        assert one == other
        assert identical(messages, known.decode(one))


@pytest.mark.parametrize("other", [date(2027, 1, 1), 7, None, ["x"], b"x", Point(1, [])])
def test_what_is_no_message_may_take_the_place_of_one(other: Any) -> None:
    """Of a list that was known, whose first is still the same."""
    known = codec()
    messages: list[Any] = [{"role": "user", "content": "x" * 600} for _ in range(12)]
    known.write(messages)
    messages[5] = other

    assert identical(messages, known.decode(known.write(messages)))


class Grumpy:
    """Can't be compared with anything, as arrays can't."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise ValueError("whether that is so is ambiguous")


@pytest.mark.parametrize("known", [{"role": "user", "content": "x" * 600}, "x" * 600])
@pytest.mark.parametrize("odd", [Grumpy(), {"role": "user", "content": Grumpy()}])
def test_what_can_not_be_compared_is_refused_as_ever(known: Any, odd: Any) -> None:
    """By its path, and not by its own words."""
    fresh, items = codec(), [known] * 12
    fresh.write(items)
    items[5] = odd

    with pytest.raises(ValueRefused) as refused:
        fresh.write(items)
    assert refused.value.path.startswith("$[5]")


def change_texts(texts: list[Any], rng: random.Random) -> None:
    """A list of texts, and of what is hardly one."""
    at, text = rng.randrange(len(texts)), rng.choice("xyz") * rng.choice((0, 3, 511, 512, 700))
    match rng.randrange(7):
        case 0 | 1 | 2:
            texts.append(text)
        case 3 if len(texts) > 9:
            del texts[rng.choice((0, at))]
        case 4:
            texts.insert(at, {"k": text})
        case 5:
            texts[at] = text.encode()
        case _:
            texts[at] = text


def test_texts_that_are_known_are_written_like_those_that_are_not() -> None:
    """The same of a list of texts; what equals one is refused there, too."""
    rng, known = random.Random(SEED), codec()
    texts: list[Any] = [f"{n}" * 600 for n in range(9)]
    for _ in range(600):
        change_texts(texts, rng)
        one = known.write(texts)
        assert one == codec().write(texts)
        assert identical(texts, known.decode(one))
    texts = [str(Word.LONG)] * 9
    known.write(texts)
    texts[-1] = Word.LONG
    with pytest.raises(ValueRefused):
        known.write(texts)


@pytest.mark.parametrize(
    "pair", [({"r": "1"}, {"s": "2", "t": "3"}), ({"r": "1", "x": "2"}, {"t": "3"})]
)
def test_messages_with_the_same_texts_are_told_apart(pair: tuple[Any, Any]) -> None:
    """One has what the other had, or has it by another name."""
    known = codec()
    messages: list[Any] = [{"k": "first"} for _ in range(9)] + [{"r": "1", "s": "2"}, {"t": "3"}]
    known.write(messages)
    messages[-2:] = pair

    assert messages == known.decode(known.write(messages))


@pytest.mark.parametrize("odd", [Odd(k="a" * 600), {"k": Word.LONG}, {Word.LONG: "a"}])
def test_what_equals_a_message_that_is_known_is_none(odd: Any) -> None:
    """Exact types count, wherever in the list and however often it was met."""
    fresh = codec()
    texts = {str(key): str(value) for key, value in odd.items()}
    messages: list[Any] = [{"k": "first"}] * 9 + [texts]
    assert fresh.write(messages) == fresh.write(messages)
    messages[-1] = odd

    with pytest.raises(ValueRefused):
        fresh.write(messages)


def test_a_lone_surrogate_in_a_leaf_is_refused_by_its_path() -> None:
    """The path leads to the text, as in a small value."""
    with pytest.raises(ValueRefused) as refused:
        ALL.write([{"role": "user", "content": "x" * 600 + "\ud800"}] * 9)

    assert "$[0].content" == refused.value.path


def test_the_digest_is_that_of_the_value() -> None:
    """The same whether the memo knew the texts, and whether it was parted at once or later."""
    value = {"messages": [{"role": "user", "content": f"{n}" * 700} for n in range(30)]}
    known = ALL.write(value)

    assert digest(known) == digest(ALL.write(value)) == digest(codec().write(value))
    assert digest(known) == digest(part(ALL.encode(value)))
    assert ALL.same(known, ALL.write({"messages": list(value["messages"])}))


def test_a_parted_value_can_not_be_written_like_plain_bytes() -> None:
    """Its leaves can't be lost on the way: whoever forgets them is refused."""
    form = ALL.write("x" * 600)

    with pytest.raises(TypeError):
        encode_events([StepDone(0, "0/s#1", 1, b"", b"", form)])
    with pytest.raises(TypeError):
        msgspec.msgpack.encode(form)


def test_small_values_stay_plain() -> None:
    """Below the limits a value is what the codec alone makes of it."""
    for value in ("x" * 500, {"a": "x" * 200, "b": 1}, [1, "x" * 300], None):
        form = ALL.write(value)
        assert type(form) is bytes
        assert ALL.encode(value) == form


def test_a_memo_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins anew when it holds too much, and nothing is different then."""
    monkeypatch.setattr("outlive.journal.codec.parts.MEMO_BYTES_MAX", 5_000)
    memo = LeafMemo()
    memo._room = 5_000
    references = [memo.reference(f"{n:04}" * 200) for n in range(50)]

    assert len(memo._known) <= 7
    assert references == [LeafMemo().reference(f"{n:04}" * 200) for n in range(50)]
