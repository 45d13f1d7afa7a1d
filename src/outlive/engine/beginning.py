"""Steps and effects are begun: from where an earlier driver left them, or for the first time."""

from __future__ import annotations

from collections import deque
from typing import Protocol

import msgspec

from outlive.engine.effects import EffectRunner
from outlive.engine.ops import Op, Recorder
from outlive.engine.replay import Replay
from outlive.engine.steps import StepRunner
from outlive.engine.waiting import Waiting
from outlive.errors import OutliveError, RunError
from outlive.model.events import Event

#: Events of one run that may wait for the disk before its next body starts.
UNDURABLE_MAX = 256


class Startable(Recorder, Protocol):
    """What a beginning asks of the drive."""

    effects: EffectRunner
    waiting: Waiting
    inbox: deque[Event]
    to_start: list[Op]

    def attend(self) -> None:
        """Look again at what is to be done."""
        ...

    def activate(self) -> None:
        """Let the flow run as far as it can."""
        ...

    def refuse(self, error: OutliveError) -> None:
        """The run can't go on here."""
        ...


class Beginning:
    """Begins the ops of one run."""

    def __init__(self, drive: Startable, replay: Replay) -> None:
        self._drive, self._replay = drive, replay
        self._steps = StepRunner(drive)

    def open_effects(self) -> None:
        """What an earlier driver left open comes first: mail may be about it."""
        drive = self._drive
        for op in list(drive.to_start):
            known = self._replay.effects.pop(op.id, None)
            if known is not None:
                drive.to_start.remove(op)
                drive.effects.start(op, known)

    def asked_for(self) -> None:
        """What the flow has asked for since."""
        drive = self._drive
        if drive.to_start and drive.log.seq - drive.log.durable > UNDURABLE_MAX:
            # Back-pressure: the disk is behind; nothing new starts until it has caught up.
            drive.when_durable(drive.attend)
            return
        ops, drive.to_start = drive.to_start, []
        for op in ops:
            if self._replay.knows and self._deliver_known(op):
                continue
            if op.id in drive.waiting.unsettled:
                drive.effects.start(op, None)
            elif not op.orphan:
                self._steps.start(op, self._replay.backoffs.pop(op.id, None))

    def _deliver_known(self, op: Op) -> bool:
        """What was done before the run failed is not done again; thousands have their turns."""
        drive = self._drive
        if drive.waiting.find(op.id) is None:
            return False  # given up meanwhile
        try:
            event = self._replay.known_of(op)
        except RunError as error:
            drive.refuse(error)
            return True
        if event is not None:
            drive.inbox.append(msgspec.structs.replace(event, at=drive.at()))
            drive.log.append(drive.inbox[-1])
            drive.env.host.call_soon(drive.activate)
        return event is not None
