"""A loop of one's own that saves its state at every step, and goes on from there.

    python own_loop.py

It reads pages and collects what they say. Kill it wherever you like and start it again: pages that
were read are not read again, and a page that fails is tried again with the state as it was.
"""

import asyncio
from pathlib import Path

from outlive import Retry
from outlive.checkpoints import DurableRunner

PAGES = ["one", "two", "three", "four"]
READ = Path("read.txt")

runner = DurableRunner(retry=Retry(attempts=3, delay="50ms"))


@runner.step
async def read(state: dict[str, list[str]], page: str) -> int:
    """A pretend web site, which takes its time and fails now and then."""
    with READ.open("a") as log:
        log.write(f"{page}\n")
    await asyncio.sleep(0.2)
    state["found"].append(f"what page {page} says")
    if page == "two" and READ.read_text().count("two") == 1:
        raise ConnectionError("the line went dead")
    return len(state["found"])


async def main() -> None:
    """Read all pages, then say what was found."""
    async with runner.auto("reading", {"found": []}) as run:
        for page in PAGES:
            print(page, await read(run.state, page), flush=True)
        print("; ".join(run.state["found"]))


asyncio.run(main())
