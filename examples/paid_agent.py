"""A paid agent: kill it at any time; each job is paid once, done once and delivered once.

    PAYMENT_SERVICE_URL=http://127.0.0.1:3001/api/v1 PAYMENT_API_KEY=... AGENT_IDENTIFIER=... \
        uvicorn paid_agent:service

Jobs come by POST /start_job, as MIP-003 says. The research takes a while: a process that dies in
the middle of it leaves the chapters that are done, and the next one continues with the others.
"""

import asyncio
import os
from typing import Any

import outlive
from outlive.jobs import JobPolicy, JobService
from outlive.jobs.masumi import MasumiEscrow

SCHEMA = {
    "input_data": [
        {"id": "topic", "type": "text", "name": "Topic"},
        {
            "id": "chapters",
            "type": "number",
            "name": "Chapters",
            "validations": [{"validation": "max", "value": "20"}],
        },
    ]
}


@outlive.step
async def write_chapter(topic: str, number: int) -> str:
    """Stands for a model call; each is paid for, so none may be made twice."""
    await asyncio.sleep(0.3)
    print(f"chapter {number} of {topic}", flush=True)
    return f"{number}. About {topic}"


async def research(identifier_from_purchaser: str, input_data: dict[str, Any]) -> str:
    count = int(input_data["chapters"])
    chapters = [await write_chapter(input_data["topic"], number + 1) for number in range(count)]
    return "\n".join(chapters)


service = JobService(
    research,
    escrow=MasumiEscrow(
        os.environ["PAYMENT_SERVICE_URL"],
        os.environ["PAYMENT_API_KEY"],
        os.environ["AGENT_IDENTIFIER"],
    ),
    store=os.environ.get("OUTLIVE_STORE", "sqlite:///jobs.db"),
    input_schema=SCHEMA,
    policy=JobPolicy(margin="2m"),
    poll_every=float(os.environ.get("POLL_SECONDS", "10")),
)
