"""What models were used for, and what that cost: added up per model."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

import msgspec

from outlive.errors import UsageError
from outlive.model.ids import is_name


class Usage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The use of one model: by a body, or by a whole run."""

    #: Its name, as the caller gave it.
    model: str
    #: What it was given to read.
    input_tokens: int = 0
    #: What it wrote.
    output_tokens: int = 0
    #: In whatever currency the caller counts.
    cost: float = 0.0
    #: How often it was told of.
    calls: int = 1


def add_usage(total: dict[str, Usage], used: Iterable[Usage]) -> None:
    """Add what was used to what was used before."""
    for each in used:
        known = total.get(each.model)
        if known is not None:
            each = Usage(
                each.model,
                known.input_tokens + each.input_tokens,
                known.output_tokens + each.output_tokens,
                known.cost + each.cost,
                known.calls + each.calls,
            )
        total[each.model] = each


def checked_usage(usage: Usage) -> Usage:
    """Check what a user tells of.

    Raises:
        UsageError: it says which of it is impossible.
    """
    if not is_name(usage.model):
        raise UsageError(f"outlive.usage(model={usage.model!r}): a model has a name")
    for name in ("input_tokens", "output_tokens"):
        count = getattr(usage, name)
        if type(count) is not int or not 0 <= count < 1 << 63:
            raise UsageError(f"outlive.usage({name}={count!r}): a number of tokens is an int, >= 0")
    cost = usage.cost
    if type(cost) not in (int, float) or not isfinite(cost) or cost < 0:
        raise UsageError(f"outlive.usage(cost={cost!r}): a cost is a finite number, >= 0")
    return usage
