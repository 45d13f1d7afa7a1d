"""Steps as the tools of an agent framework, which looks at them and calls them as it likes."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: In a folder of its own: a framework brings much that nothing else here needs.
WANTED = (
    "pydantic-ai-slim==2.66.0",
    *(f"{name}=={version(name)}" for name in ("msgspec", "backports.zstd")),
)

PROGRAM = '''
import asyncio, os, signal
import outlive
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel


@outlive.step
async def orders(customer: str, limit: int = 3) -> list[str]:
    """The orders of a customer."""
    print("orders of", customer, flush=True)
    return [f"{customer}-{number}" for number in range(limit)]


@outlive.effect
async def refund(order: str, cents: int) -> str:
    """Give money back."""
    print("refund of", order, flush=True)
    return f"{cents} cents for {order}"


@outlive.step
async def notify(text: str) -> None:
    """Tell the customer."""
    if os.environ.get("DIES"):
        await asyncio.sleep(1)  # what was before is durable
        os.kill(os.getpid(), signal.SIGKILL)


async def model(messages, info):
    """It calls each tool once, the arguments as a model gives them."""
    assert {"orders", "refund", "notify"} == {tool.name for tool in info.function_tools}
    asked = {"customer": {"type": "string"}, "limit": {"default": 3, "type": "integer"}}
    assert asked == info.function_tools[0].parameters_json_schema["properties"]
    assert "The orders of a customer." == info.function_tools[0].description
    calls = [
        ToolCallPart("orders", '{"customer": "ann", "limit": 2}'),
        ToolCallPart("refund", '{"order": "ann-0", "cents": 5}'),
        ToolCallPart("notify", '{"text": "done"}'),
    ]
    turn = sum(isinstance(message, ModelResponse) for message in messages)
    refunded = str(messages[min(4, len(messages) - 1)].parts[0].content)
    return ModelResponse(parts=[calls[turn] if turn < 3 else TextPart(refunded)])


agent = Agent(FunctionModel(model), tools=[orders, refund, notify])


@outlive.flow
async def support(question: str) -> str:
    return (await agent.run(question)).output


print(outlive.run(support, "Where is my money?", id="s"))
'''


@pytest.fixture(scope="module")
def python() -> Path:
    """An interpreter that has the framework; its folder is kept, and made once."""
    folder = ROOT / ".venv" / "framework"
    made, stamp = folder / "bin" / "python", folder / "stamp"
    if not stamp.exists() or stamp.read_text() != "\n".join(WANTED):
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        quietly = ("--quiet", "--disable-pip-version-check")
        subprocess.run([made, "-m", "pip", "install", *quietly, *WANTED], check=True)
        stamp.write_text("\n".join(WANTED))
    return made


@pytest.mark.full
def test_steps_are_the_tools_of_an_agent(python: Path, tmp_path: Path) -> None:
    """Its schema is theirs; killed in its last tool it goes on, and calls none of them twice."""
    (tmp_path / "desk.py").write_text(PROGRAM)
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT / "src")}

    def run(code: int, **more: str) -> str:
        ran = subprocess.run(
            [python, "desk.py"],
            cwd=tmp_path,
            env=surroundings | more,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert code == ran.returncode, ran.stderr
        return ran.stdout

    assert "orders of ann\nrefund of ann-0\n" == run(-9, DIES="1")
    assert "5 cents for ann-0\n" == run(0)
