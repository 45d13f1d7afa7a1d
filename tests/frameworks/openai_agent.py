"""A program that runs an agent of openai-agents in a place, and may be killed in a tool.

    python -m tests.frameworks.openai_agent STORE LOG [DIES_AT]

It prints the outcome and the ids of all steps. The log gets a line for each time that a tool ran.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from agents import Agent, FunctionTool, Model, ModelResponse, Runner, Usage, set_tracing_disabled
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

import outlive
from outlive.model.events import EffectDone, StepDone

LOG = Path(sys.argv[2])
DIES_AT = sys.argv[3] if len(sys.argv) > 3 else ""
#: What the model wants in each turn: tools, by the ids of their calls.
SCRIPT = (("a", "b", "c"), ("d", "e"), ())


async def answer(turn: int) -> list[str]:
    """The model: no network, but a body like any other."""
    await asyncio.sleep(0.01)
    return [f"call_{each}" for each in SCRIPT[turn]]


async def use_tool(call: str) -> str:
    if call == DIES_AT:
        os.kill(os.getpid(), signal.SIGKILL)
    with LOG.open("a") as log:
        log.write(f"{call} {outlive.key()}\n")
    await asyncio.sleep(0.01)
    return f"{call} done"


class Scripted(Model):
    """A model whose answers are steps."""

    def __init__(self) -> None:
        self.turn = 0

    async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
        calls = await outlive.do("model", answer, self.turn)
        self.turn += 1
        output: list[Any] = [
            ResponseFunctionToolCall(
                type="function_call", name="use", call_id=call, arguments=json.dumps({"call": call})
            )
            for call in calls
        ]
        if not calls:
            said = ResponseOutputText(type="output_text", text="ready", annotations=[])
            output = [
                ResponseOutputMessage(
                    id="m", type="message", role="assistant", status="completed", content=[said]
                )
            ]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


async def invoke(context: Any, arguments: str) -> str:
    call = json.loads(arguments)["call"]
    options = outlive.EffectOptions(doubt="retry")
    return await outlive.do("use", use_tool, call, id=context.tool_call_id, effect=options)


@outlive.flow
async def helpful() -> str:
    schema = {
        "type": "object",
        "properties": {"call": {"type": "string"}},
        "required": ["call"],
        "additionalProperties": False,
    }
    tool = FunctionTool("use", "Do it.", schema, invoke)
    agent = Agent(name="helpful", model=Scripted(), tools=[tool])
    with outlive.place("agent"):
        return str((await Runner.run(agent, "Go.")).final_output)


async def main() -> None:
    set_tracing_disabled(True)
    async with outlive.open(sys.argv[1]) as app:
        handle = await app.start(helpful, id="r")
        outcome = await handle.outcome("60s")
        steps = [e.step for e in await handle.read() if isinstance(e, (StepDone, EffectDone))]
    print(json.dumps({"outcome": outcome, "steps": sorted(steps)}))


if __name__ == "__main__":
    asyncio.run(main())
