"""An agent that takes messages from a lossy wire: it may be killed anywhere."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any

from outlive.errors import TimedOut
from outlive.inbox import AckStage, PersistentActivityBuffer, SQLitePersistence
from outlive.locks import DistributedLock


class Agent:
    """Handles each token once: its effect is a line in a file, which can be looked at."""

    def __init__(self, folder: Path) -> None:
        self._place = SQLitePersistence(folder / "inbox.db")
        self.inbox = PersistentActivityBuffer(persistence=self._place, max_items=100_000)
        self._effects = folder / "effects"

    def handle(self, message: dict[str, Any]) -> None:
        """A message that came."""
        token = message["idempotency_token"]
        with DistributedLock(resource=token, persistence=self._place, timeout_seconds=60):
            if self.inbox.begin(message).is_new:
                self._perform(token)
                self._acknowledge(message["message_id"])

    def recover(self) -> None:
        """What a dead agent left: look whether its effect has happened, and settle it."""
        for record in self.inbox.reconcile():
            token = record.idempotency_token
            lock = DistributedLock(resource=token, persistence=self._place, timeout_seconds=0)
            try:
                lock.acquire()
            except TimedOut:
                continue  # somebody works on it
            try:
                self._settle(token, record.message_id)
            finally:
                lock.release()

    def _settle(self, token: str, message_id: str) -> None:
        known = self.inbox.begin(token, again=True)
        if known.is_new and token not in self._effects.read_text().split():
            self._perform(token)
        self._acknowledge(message_id)

    def _perform(self, token: str) -> None:
        fd = os.open(self._effects, os.O_WRONLY | os.O_APPEND)
        os.write(fd, f"{token}\n".encode())
        os.close(fd)

    def _acknowledge(self, message_id: str) -> None:
        stage = AckStage.FULFILLED
        self.inbox.ack({"ack_for_message_id": message_id, "ack_stage": stage})


def main(folder: Path, seed: int, count: int) -> None:
    chance, agent = random.Random(seed), Agent(folder)
    agent.recover()
    tokens = [f"token-{number}" for number in range(count)]
    chance.shuffle(tokens)
    for token in tokens:
        for copy in range(chance.randrange(1, 3)):
            message = {"message_id": f"{token}-{seed}-{copy}", "idempotency_token": token}
            agent.handle(message)
    agent.recover()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
