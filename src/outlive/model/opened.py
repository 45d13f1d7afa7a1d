"""What is open in a run: effects that are not settled, attempts that are to come."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from outlive.model.events import EffectIntended, Fault


class OpenEffect(msgspec.Struct):
    """An effect whose intent is in the journal and whose end is not."""

    intent: EffectIntended
    #: The newest attempt that was begun.
    attempt: int
    not_after: int
    #: Of the driver that began the newest attempt.
    epoch: int
    #: Set while an attempt's end is unknown: when it surely was over (ms since 1970), if known.
    over_at: int | None = None
    doubt: Fault | None = None
    asks: bool = False
    #: Set between attempts: when the next may start.
    retry_at: int | None = None
    error: Fault | None = None
    #: An earlier attempt may have happened; it was repeated because the receiver honours the key.
    maybe: bool = False
    #: The seq of the newest attempt's intent.
    seq: int = 0


@dataclass(slots=True)
class Backoff:
    """A plain step between two attempts."""

    attempt: int
    retry_at: int
    error: Fault
