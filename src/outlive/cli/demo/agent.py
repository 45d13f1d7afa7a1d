"""A support agent as a user writes it. ``agent_plain.py`` is the same without Outlive."""

import asyncio

import outlive
from outlive.cli.demo.world import TICKET, TICKET_ID, ask_model, bank, post


@outlive.step
async def plan(ticket: str) -> list[str]:
    return (await ask_model("plan", ticket)).splitlines()


@outlive.step
async def search(query: str) -> str:
    return await ask_model("search", query)


@outlive.step
async def decide(ticket: str, findings: list[str]) -> str:
    return await ask_model("decide", ticket, *findings)


async def find_refund(key: str) -> object:
    return await bank.find(key) or outlive.NOT_HAPPENED


@outlive.effect(key="refund:{order}", check=find_refund, settle_after="500ms")
async def refund(order: str, cents: int, reason: str) -> str:
    return await bank.refund(order, cents, reason, key=outlive.key())


@outlive.step
async def write(ticket: str, reason: str, receipt: str) -> str:
    return await ask_model("write", ticket, reason, receipt)


async def find_mail(key: str) -> object:
    return await post.find(key) or outlive.NOT_HAPPENED


@outlive.effect(check=find_mail, settle_after="500ms")
async def mail(to: str, letter: str) -> str:
    return await post.send(to, letter, key=outlive.key())


@outlive.step
async def close(ticket: str, receipt: str, sent: str) -> str:
    return await ask_model("close", ticket, receipt, sent)


@outlive.flow
async def support(ticket: str) -> str:
    queries = await plan(ticket)
    findings = await asyncio.gather(*(search(query) for query in queries))
    reason = await decide(ticket, findings)
    receipt = await refund("A-1042", 1999, reason)
    letter = await write(ticket, reason, receipt)
    sent = await mail("ada@example.com", letter)
    return await close(ticket, receipt, sent)


if __name__ == "__main__":
    print(outlive.run(support, TICKET, id=TICKET_ID))
