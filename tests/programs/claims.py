"""Claims of customers: a web page takes them, a worker pays what a clerk has approved.

uvicorn claims:app
outlive worker claims
"""

import asyncio
import json
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

import outlive
from outlive import errors

BOOK = Path("bank.jsonl")
BANK_SECONDS = 1.0


@outlive.step(retry=outlive.Retry(attempts=2, delay="50ms"))
async def assess(order: str) -> int:
    return 100 * len(order)


def find_payment(key: str) -> object:
    lines = BOOK.read_text().splitlines() if BOOK.exists() else []
    booked = {entry["key"]: entry["cents"] for entry in map(json.loads, lines)}
    return booked.get(key, outlive.NOT_HAPPENED)


@outlive.effect(key="claim:{order}", check=find_payment, settle_after="100ms")
async def pay(order: str, cents: int) -> int:
    with BOOK.open("a") as book:
        book.write(json.dumps({"key": outlive.key(), "cents": cents}) + "\n")
    await asyncio.sleep(BANK_SECONDS)
    return cents


@outlive.flow
async def claim(order: str) -> str:
    cents = await assess(order)
    approval = await outlive.approve(pay, order, cents, within="2d")
    if not approval.granted:
        return f"refused by {approval.by}"
    return f"paid {await pay(order, cents)} cents, approved by {approval.by}"


class Claim(BaseModel):
    order: str


class Decision(BaseModel):
    granted: Any
    by: str


app = FastAPI()


@app.post("/claims/{claim_id}", status_code=202)
async def hand_in(claim_id: str, new: Claim) -> dict[str, str]:
    handle = await outlive.submit(claim, new.order, id=claim_id)
    return {"id": handle.id}


@app.get("/claims/{claim_id}")
async def look(claim_id: str) -> dict[str, Any]:
    handle = await outlive.get(claim_id)
    asked = [question.text for question in await handle.questions()]
    return {"status": await handle.status(), "questions": asked}


@app.post("/claims/{claim_id}/decision")
async def decide(claim_id: str, decision: Decision) -> dict[str, str]:
    handle = await outlive.get(claim_id)
    await handle.answer(decision.granted, by=decision.by)
    return {"decided": claim_id}


@app.get("/claims/{claim_id}/outcome")
async def outcome(claim_id: str) -> dict[str, str]:
    handle = await outlive.get(claim_id, claim)
    return {"outcome": await handle.outcome(timeout="8s")}


STATUS: dict[type[errors.OutliveError], int] = {
    errors.RunNotFound: 404, errors.RunIdTaken: 409, errors.QuestionNotOpen: 409,
    errors.RunEnded: 409, errors.AnswerRefused: 422, errors.TimedOut: 504,
}  # fmt: skip


@app.exception_handler(errors.OutliveError)
async def refuse(_: Request, error: errors.OutliveError) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, STATUS.get(type(error), 500))
