"""A support agent: a model picks tools, a human approves whatever moves money.

    outlive run tool_loop:support --id ticket-1 --input '["I was charged twice for order 7"]'
    outlive answer ticket-1 yes             # in another terminal, when it asks

Kill it wherever you like and start it again with the same id: it goes on. The model is a pretend
one unless OPENAI_BASE_URL names a server that speaks the chat API (OPENAI_API_KEY, OPENAI_MODEL).
"""

import asyncio
import json
import os
import re
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import outlive

BANK = Path("bank.jsonl")
PROMPT = """You are a support agent. Reply with one JSON object {"tool": ..., "arguments": {...}}.
Tools: look_up(order) shows an order; refund(order, cents) gives money back;
answer(text) ends the conversation with a reply to the customer."""


@dataclass(frozen=True)
class Action:
    """What the model wants done."""

    tool: str
    arguments: dict[str, Any]


@outlive.step(retry=outlive.Retry(attempts=5), timeout="90s")
async def think(messages: list[str]) -> Action:
    """The next action, by the model."""
    url = os.environ.get("OPENAI_BASE_URL")
    return await asyncio.to_thread(ask_model, url, messages) if url else pretend(messages)


def ask_model(url: str, messages: list[str]) -> Action:
    body = {
        "model": os.environ.get("OPENAI_MODEL", "gpt-4o-mini"),
        "messages": [
            {"role": "system", "content": PROMPT},
            {"role": "user", "content": "\n".join(messages)},
        ],
    }
    headers = {
        "Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', '')}",
        "Content-Type": "application/json",
    }
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        said = json.load(response)["choices"][0]["message"]["content"]
    return Action(**json.loads(said))


def pretend(messages: list[str]) -> Action:
    """A model that knows one trick."""
    found = re.search(r"order (\w+)", messages[0])
    order = found[1] if found else "unknown"
    match messages[-1].split(":")[0]:
        case "customer":
            return Action("look_up", {"order": order})
        case "look_up":
            return Action("refund", {"order": order, "cents": 1999})
        case _:
            return Action("answer", {"text": f"Dear customer, {messages[-1]}."})


@outlive.step
async def look_up(order: str) -> str:
    """A read: harmless to repeat."""
    return f"order {order}: one lamp, 19.99, charged twice"


def find_refund(key: str) -> object:
    """Ask the bank what became of a refund."""
    for line in BANK.read_text().splitlines() if BANK.exists() else []:
        entry = json.loads(line)
        if entry["key"] == key:
            return entry["receipt"]
    return outlive.NOT_HAPPENED


@outlive.effect(key="refund:{order}", check=find_refund)
async def refund(order: str, cents: int) -> str:
    """A pretend bank: it books at once and takes its time to reply."""
    receipt = f"{cents} cents were given back for order {order}"
    with BANK.open("a") as book:
        book.write(json.dumps({"key": outlive.key(), "receipt": receipt}) + "\n")
    await asyncio.sleep(2)
    return receipt


Tool = outlive.Step[..., Any] | outlive.Effect[..., Any]
TOOLS: dict[str, Tool] = {"look_up": look_up, "refund": refund}


@outlive.flow
async def support(question: str) -> str:
    """Think, act, observe, until there is an answer."""
    messages = [f"customer: {question}"]
    while True:
        action = await think(messages)
        if action.tool == "answer":
            return str(action.arguments["text"])
        messages.append(f"{action.tool}: {await use(action)}")


async def use(action: Action) -> str:
    """What came of it, in words for the model."""
    if (tool := TOOLS.get(action.tool)) is None:
        return "there is no such tool"
    if isinstance(tool, outlive.Effect):
        approval = await outlive.approve(tool, **action.arguments, within="2d")
        if not approval.granted:
            return f"{approval.by} said no: {approval.note}"
    return str(await tool(**action.arguments))
