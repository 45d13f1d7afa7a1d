"""The app of the masumi package on our storage, with recovery: STORE URL KEY AGENT PORT FOLDER.

With a seventh argument "plain" nothing is recovered, as in the package itself.
"""

from __future__ import annotations

import asyncio
import os
import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn

warnings.simplefilter("ignore")

import masumi  # noqa: E402
from masumi import Config, create_masumi_app  # noqa: E402
from masumi.hitl import request_input  # noqa: E402

from outlive.jobs.masumi import MasumiJobStorage, recover_jobs_on_startup  # noqa: E402
from outlive.web import lifespan  # noqa: E402

STORE, URL, KEY, AGENT, PORT, FOLDER = sys.argv[1:7]
FORM = {"input_data": [{"id": "note", "type": "text", "name": "Note"}]}


async def handler(identifier: str, input_data: dict[str, Any]) -> str:
    with Path(FOLDER, "executed").open("a") as file:
        file.write(f"{input_data['text']} {os.getpid()}\n")
    text = input_data["text"].upper()
    if input_data.get("ask"):
        text += " " + (await request_input(FORM, "More?"))["note"]
    while not Path(FOLDER, "go").exists():
        await asyncio.sleep(0.05)
    return text


storage = MasumiJobStorage(STORE)
config = Config(URL, KEY)
app = create_masumi_app(
    config=config,
    agent_identifier=AGENT,
    job_storage=storage,
    start_job_handler=handler,
    input_schema_handler={"input_data": [{"id": "text", "type": "text", "name": "Text"}]},
    seller_vkey="ab" * 28,
)


@asynccontextmanager
async def recovery() -> AsyncIterator[None]:
    jobs = await recover_jobs_on_startup(
        storage, config, app=app, poll_seconds=0.2, lease_seconds=2
    )
    yield
    await jobs.stop()


if __name__ == "__main__":
    served: Any = app if sys.argv[7:] == ["plain"] else lifespan(app, recovery)
    assert masumi.__version__ == "1.2.0"
    uvicorn.run(served, host="127.0.0.1", port=int(PORT), log_level="warning")
