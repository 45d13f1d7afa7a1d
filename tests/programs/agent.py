"""A support agent on the openai client: a model picks tools, an effect pays the customer back.

    python agent.py ticket-1 "I was charged twice for order 7"

OPENAI_BASE_URL and OPENAI_API_KEY say where the model is. Killed and started again with the same
id, it goes on.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import openai
from openai.types.chat import ChatCompletionFunctionToolParam as Tool
from openai.types.chat import ChatCompletionMessage, ChatCompletionMessageParam

import outlive

BOOK = Path("bank.jsonl")
BANK_SECONDS = 1.0
ORDERS = {"7": 1999, "8": 500}


def tool(name: str, **properties: str) -> Tool:
    fields = {key: {"type": kind} for key, kind in properties.items()}
    parameters = {"type": "object", "properties": fields, "required": list(fields)}
    return {"type": "function", "function": {"name": name, "parameters": {**parameters}}}


TOOLS = [tool("look_up", order="string"), tool("refund", order="string", cents="integer")]


@outlive.step(
    retry=outlive.Retry(attempts=3, delay="50ms", only=(openai.APIConnectionError, TimeoutError)),
    timeout="1s",
    raises=(openai.APIError,),
)
async def think(messages: list[ChatCompletionMessageParam]) -> ChatCompletionMessage:
    async with openai.AsyncOpenAI(max_retries=0) as client:
        reply = await client.chat.completions.create(
            model="gpt-4o-mini", messages=messages, tools=TOOLS
        )
    return reply.choices[0].message


@outlive.step
async def look_up(order: str) -> int:
    return ORDERS[order]


async def find_refund(key: str) -> object:
    lines = BOOK.read_text().splitlines() if BOOK.exists() else []
    booked = {entry["key"]: entry["cents"] for entry in map(json.loads, lines)}
    return booked.get(key, outlive.NOT_HAPPENED)


@outlive.effect(key="refund:{order}", check=find_refund, timeout="3s", settle_after="100ms")
async def refund(order: str, cents: int) -> int:
    with BOOK.open("a") as book:
        book.write(json.dumps({"key": outlive.key(), "cents": cents}) + "\n")
    await asyncio.sleep(BANK_SECONDS)
    return cents


async def use(name: str, arguments: dict[str, Any]) -> str:
    match name:
        case "look_up":
            return f"{await look_up(**arguments)} cents"
        case "refund":
            return f"{await refund(**arguments)} cents were given back"
        case _:
            return f"there is no tool {name}"


@outlive.flow
async def support(question: str) -> str:
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": question}]
    while (message := await think(messages)).tool_calls:
        messages.append({"role": "assistant", "content": message.content})
        for call in message.tool_calls:
            assert call.type == "function"
            result = await use(call.function.name, json.loads(call.function.arguments))
            messages.append({"role": "user", "content": f"{call.function.name}: {result}"})
    return message.content or ""


if __name__ == "__main__":
    ticket, question = sys.argv[1:]
    print(outlive.run(support, question, id=ticket))
