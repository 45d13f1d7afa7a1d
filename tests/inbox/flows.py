"""A flow that messages start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import outlive


@outlive.step
async def pay(path: str, amount: int) -> int:
    with Path(path).open("a") as file:
        file.write(f"{amount}\n")
    return amount


@outlive.flow
async def payment(message: dict[str, Any]) -> int:
    if message["amount"] < 0:
        raise ValueError("a payment is positive")
    return await pay(message["path"], message["amount"])
