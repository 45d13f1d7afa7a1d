"""Carries out a plan of kills: one SIGKILL per moment, on whichever agent runs then."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from collections.abc import Sequence

from outlive.cli.demo.kills import Kill, Moment


class Doom:
    """Kills the agent of one side, at the moments of a plan, each once."""

    def __init__(self, plan: Sequence[Kill], think_seconds: float) -> None:
        self._pending = {kill.moment: kill for kill in plan}
        self._think_seconds = think_seconds
        self._victim: Process | None = None
        self._moment: Moment | None = None
        self._strike: asyncio.Task[None] | None = None

    @property
    def is_near(self) -> bool:
        """A kill was decided, and its victim has not been mourned yet."""
        return self._moment is not None

    def aim(self, victim: Process) -> None:
        """This is the agent now."""
        self._victim = victim

    def plans(self, moment: Moment) -> bool:
        """This moment is among those to come."""
        return moment in self._pending

    def strikes(self, moment: Moment, answers: int = 0) -> bool:
        """True if the agent dies at this moment; the signal comes a little later."""
        kill = self._pending.get(moment)
        if kill is None or self.is_near:
            return False
        if moment is Moment.SEARCHING and answers < kill.answers:
            return False
        del self._pending[moment]
        self._moment = moment
        self._strike = asyncio.create_task(self._kill(kill))
        return True

    async def _kill(self, kill: Kill) -> None:
        await asyncio.sleep(kill.delay_seconds(self._think_seconds))
        if self._victim is not None and self._victim.returncode is None:
            self._victim.kill()

    def mourn(self) -> str:
        """The agent is dead; say at which moment it died."""
        moment, self._moment = self._moment, None
        if moment is None and Moment.REFUND_MADE in self._pending:
            moment = self._pending.pop(Moment.REFUND_MADE).moment
        return "by somebody else" if moment is None else moment.value
