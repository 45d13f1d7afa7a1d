"""An agent in a process of its own: STORE SERVICE_URL KEY AGENT PORT FOLDER.

The input of a job says where its process is killed, once: {"text": ..., "kill": "submit:after"}.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import uvicorn

import outlive
from outlive.jobs import EscrowPayment, EscrowView, JobOrder, JobPolicy, JobService, request_input
from outlive.jobs.masumi import MasumiEscrow

STORE, URL, KEY, AGENT, PORT, FOLDER = sys.argv[1:7]
FORM = {"input_data": [{"id": "note", "type": "text", "name": "Note"}]}


def note(name: str, what: str) -> None:
    """Append a line to a file, durably."""
    with Path(FOLDER, name).open("a") as file:
        file.write(what + "\n")
        file.flush()
        os.fsync(file.fileno())


def die(where: str, of: str, wanted: str) -> None:
    """Kill this process, if that job wants it and it has not happened yet."""
    mark = Path(FOLDER, f"killed-{of.replace('/', '_')}")
    if where == wanted and not mark.exists():
        mark.write_text(where)
        os.kill(os.getpid(), signal.SIGKILL)


class DeadlyEscrow(MasumiEscrow):
    """The escrow of an agent that is killed beside its calls."""

    wanted: dict[str, str]

    async def request(self, order: JobOrder, now_ms: int) -> EscrowPayment:
        where = str(order.input_data.get("kill"))
        die("request:before", order.job_id, where)
        payment = await super().request(order, now_ms)
        die("request:after", order.job_id, where)
        return payment

    async def submit(self, payment_id: str, digest: str) -> EscrowView:
        where = Path(FOLDER, f"wants-{digest}")
        wanted = where.read_text() if where.exists() else ""
        die("submit:before", digest, wanted)
        view = await super().submit(payment_id, digest)
        die("submit:after", digest, wanted)
        return view


@outlive.step
async def think(job: str, text: str) -> str:
    """Work that must not be done twice once it is done."""
    note("thought", text)
    return text.upper()


@outlive.step
async def finish(job: str, text: str, kill: str) -> str:
    note("finished", text)
    if kill == "work":
        await asyncio.sleep(0.3)  # what was done before is durable by now
    die("work", job, kill)
    return text + "!"


async def handler(identifier: str, input_data: dict[str, Any]) -> str:
    text = await think(outlive.run_id(), input_data["text"])
    if input_data.get("ask"):
        answer = await request_input(FORM, "One more thing?")
        text += f" {answer['note']}"
    text = await finish(outlive.run_id(), text, str(input_data.get("kill")))
    await remember(identifier, text, str(input_data.get("kill")))
    return text


@outlive.step
async def remember(identifier: str, text: str, kill: str) -> None:
    """Tell the escrow where this job wants to be killed."""
    digest = ESCROW.digest(text, identifier)
    Path(FOLDER, f"wants-{digest}").write_text(kill)


ESCROW = DeadlyEscrow(URL, KEY, AGENT)
service = JobService(
    handler,
    escrow=ESCROW,
    store=STORE,
    policy=JobPolicy(look_every="2s", settled_after="0s"),
    poll_every="300ms",
)

if __name__ == "__main__":
    uvicorn.run(service, host="127.0.0.1", port=int(PORT), log_level="warning")
