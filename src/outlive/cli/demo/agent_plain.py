"""A support agent with no safety net. ``agent.py`` is the same with Outlive."""

import asyncio

from outlive.cli.demo.world import TICKET, ask_model, bank, post


async def plan(ticket: str) -> list[str]:
    return (await ask_model("plan", ticket)).splitlines()


async def search(query: str) -> str:
    return await ask_model("search", query)


async def decide(ticket: str, findings: list[str]) -> str:
    return await ask_model("decide", ticket, *findings)


async def refund(order: str, cents: int, reason: str) -> str:
    return await bank.refund(order, cents, reason, key=f"refund:{order}")


async def write(ticket: str, reason: str, receipt: str) -> str:
    return await ask_model("write", ticket, reason, receipt)


async def mail(to: str, letter: str) -> str:
    return await post.send(to, letter, key=f"letter:{to}")


async def close(ticket: str, receipt: str, sent: str) -> str:
    return await ask_model("close", ticket, receipt, sent)


async def support(ticket: str) -> str:
    queries = await plan(ticket)
    findings = await asyncio.gather(*(search(query) for query in queries))
    reason = await decide(ticket, findings)
    receipt = await refund("A-1042", 1999, reason)
    letter = await write(ticket, reason, receipt)
    sent = await mail("ada@example.com", letter)
    return await close(ticket, receipt, sent)


if __name__ == "__main__":
    print(asyncio.run(support(TICKET)))
