"""A desk: the pretend bank and the pretend post office, each a process with a ledger file.

A desk does what it is asked, as often as it is asked: it does not deduplicate. It can be asked by
key what it did. It refuses a request whose asker hung up before it was done, so all is decided
soon after. Its tricks are played once each:

    --hold-request   do not begin before the asker is gone
    --kill-asker     do it, then kill the asker instead of replying
    --hold-reply     do it, then reply nothing before the asker is gone
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

TRICKS = ("hold-request", "kill-asker", "hold-reply")


class DeskLedger:
    """A log of completed requests, one line of JSON each, durable before the reply."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[dict[str, Any]]:
        """All completed requests."""
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_text().splitlines()]

    def add(self, entry: dict[str, Any]) -> None:
        """Complete a request: from here on it has happened."""
        with self._path.open("a") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())


class DeskServer:
    """Serves one client after the other, or several at once."""

    def __init__(self, name: str, tricks: set[str], ponder_seconds: float) -> None:
        self._name = name
        self._ledger = DeskLedger(Path(f"{name}.ledger"))
        self._tricks = tricks
        self._ponder_seconds = ponder_seconds

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection: one question."""
        try:
            line = await reader.readline()
            question = json.loads(line) if line else {}
            if "find" in question:
                _reply(writer, self._find(question["find"]))
            elif question:
                await self._do(question, reader, writer)
        finally:
            writer.close()

    def _find(self, key: str) -> str | None:
        done = (entry["number"] for entry in self._ledger.read() if entry["key"] == key)
        return next(done, None)

    async def _do(
        self,
        question: dict[str, Any],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        _say("received")
        await self._ponder(reader)
        if reader.at_eof():
            _say("refused")
            return
        asker = question.pop("pid")
        number = f"{self._name[0].upper()}-{len(self._ledger.read()) + 1}"
        self._ledger.add({"number": number, **question})
        _say("done", number)
        if self._plays("kill-asker"):
            os.kill(asker, signal.SIGKILL)
        elif self._plays("hold-reply"):
            await reader.read()
        else:
            _reply(writer, number)

    async def _ponder(self, reader: asyncio.StreamReader) -> None:
        if self._plays("hold-request"):
            await reader.read()
        else:
            await asyncio.sleep(self._ponder_seconds)

    def _plays(self, trick: str) -> bool:
        if trick not in self._tricks:
            return False
        self._tricks.remove(trick)
        return True


def _reply(writer: asyncio.StreamWriter, answer: object) -> None:
    writer.write(json.dumps({"answer": answer}).encode() + b"\n")


def _say(word: str, number: str = "") -> None:
    """Tell the parent process."""
    print(word, number, flush=True)


async def keep_open(desk: DeskServer, name: str) -> None:
    """Serve until the parent process is gone, or closes our input."""
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), over.set)
    async with await asyncio.start_unix_server(desk.serve, f"{name}.sock"):
        _say("open")
        await over.wait()


def main() -> None:
    """Run a desk in this folder."""
    parser = argparse.ArgumentParser(description="A desk of the demo.")
    parser.add_argument("name", choices=("bank", "post"))
    parser.add_argument("--ponder-seconds", type=float, default=0.0)
    for trick in TRICKS:
        parser.add_argument(f"--{trick}", dest="tricks", action="append_const", const=trick)
    asked = parser.parse_args()
    desk = DeskServer(asked.name, set(asked.tricks or ()), asked.ponder_seconds)
    asyncio.run(keep_open(desk, asked.name))


if __name__ == "__main__":
    main()
