"""The door and the driver agree on what an answer may be, as far as a schema tells."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pydantic
import pytest

from outlive.engine.inputs import from_json, schema_of
from outlive.errors import ValueRefused
from outlive.model.schema import misfit


@dataclass
class Stay:
    """Something with forms inside."""

    begin: date
    key: bytes | None = None


class Trip(pydantic.BaseModel):
    """The same, of another make, which reads more."""

    begin: datetime


def why(hint: Any, value: object) -> str | None:
    """Why the door refuses this JSON; None if it does not."""
    return misfit(value, msgspec.json.decode(schema_of(hint)))


@pytest.mark.parametrize(
    ("hint", "good", "bad", "told"),
    [
        (date, date(2024, 2, 29), "tomorrow", "$: a date like 2026-01-31 is wanted"),
        (date, date.max, "2023-02-29", "$: a date like 2026-01-31 is wanted"),
        (
            datetime,
            datetime(2024, 1, 2, 3, tzinfo=UTC),
            "2024-01-02",
            "$: an instant like 2026-01-31T09:30:00Z is wanted",
        ),
        (time, time(3, 4), "3pm", "$: a time like 09:30:00 is wanted"),
        (timedelta, timedelta(days=-1.5), "soon", "$: a duration like PT1H30M is wanted"),
        (UUID, UUID(int=3), "x", "$: a UUID is wanted"),
        (Decimal, Decimal("1.50"), "much", "$: a decimal number is wanted"),
        (bytes, b"xy", "%%%", "$: bytes in base64 is wanted"),
        (bytes, b"", "eHk", "$: bytes in base64 is wanted"),
        (date | None, None, "x", "$: a date like 2026-01-31 is wanted"),
        (list[UUID], [UUID(int=1)], ["x"], "$[0]: a UUID is wanted"),
        (Stay, Stay(date.min, b"k"), {"begin": "x"}, "$.begin: a date like 2026-01-31 is wanted"),
        (dict[str, date], {"a": date.min}, {"a": "x"}, "$.a: a date like 2026-01-31 is wanted"),
        (dict[str, int], {"a": 1}, {"a": "x"}, "$.a: integer is wanted, not str"),
        (tuple[int, str], (1, "a"), [1, 2], "$[1]: string is wanted, not int"),
        (tuple[int, str], (1, "a"), [1], "$: at least 2 items are wanted"),
        (tuple[int, str], (1, "a"), [1, "a", 3], "$: at most 2 items are wanted"),
        (Annotated[int, msgspec.Meta(ge=1)], 1, 0, "$: at least 1 is wanted"),
        (Annotated[float, msgspec.Meta(lt=1)], 0.5, 1.0, "$: less than 1 is wanted"),
        (Annotated[int, msgspec.Meta(gt=1)], 2, 1, "$: more than 1 is wanted"),
        (Annotated[int, msgspec.Meta(le=1)], 1, 2, "$: at most 1 is wanted"),
        (
            Annotated[str, msgspec.Meta(max_length=2)],
            "ab",
            "abc",
            "$: at most 2 characters are wanted",
        ),
    ],
    ids=str,
)
def test_what_the_driver_would_refuse_is_refused_at_the_door(
    hint: Any, good: object, bad: object, told: str
) -> None:
    """And what it takes is let in."""
    raw = msgspec.json.encode(good)

    assert good == from_json(hint, raw)
    assert None is why(hint, msgspec.json.decode(raw))
    with pytest.raises(ValueRefused):
        from_json(hint, msgspec.json.encode(bad))
    assert told == why(hint, bad)


def test_forms_inside_a_pydantic_model_are_for_pydantic_to_judge() -> None:
    """It takes what a browser sends, which has no seconds."""
    sent = {"begin": "2026-01-31T09:30"}

    assert isinstance(from_json(Trip, msgspec.json.encode(sent)), Trip)
    assert None is why(Trip, sent)
    assert "$.begin: string is wanted, not int" == why(Trip, {"begin": 5})
