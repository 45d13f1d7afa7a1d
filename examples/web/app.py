"""The web side: it starts runs, looks at them and talks to them. It drives none.

    uvicorn app:app

A request that is sent twice does nothing twice: the ticket's id is the run's id, the message's id
is the request's.
"""

from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from tickets import ticket

import outlive
from outlive import errors

app = FastAPI()


class NewTicket(BaseModel):
    id: str
    question: str


class Answer(BaseModel):
    question_id: str
    value: Any
    by: str


class Message(BaseModel):
    id: str
    text: str


@app.post("/tickets", status_code=202)
async def open_ticket(new: NewTicket) -> dict[str, str]:
    handle = await outlive.submit(ticket, new.question, id=new.id)
    return {"id": handle.id}


@app.get("/tickets/{ticket_id}")
async def look(ticket_id: str) -> dict[str, Any]:
    handle = await outlive.get(ticket_id)
    return {"status": await handle.status(), "questions": await handle.questions()}


@app.post("/tickets/{ticket_id}/answers", status_code=202)
async def answer(ticket_id: str, given: Answer) -> dict[str, str]:
    handle = await outlive.get(ticket_id)
    question = await handle.answer(given.value, given.question_id, by=given.by)
    return {"answered": question.text}


@app.post("/tickets/{ticket_id}/messages")
async def say(ticket_id: str, message: Message) -> dict[str, str]:
    handle = await outlive.get(ticket_id)
    reply = await handle.request("message", message.text, id=message.id, timeout="30s")
    return {"reply": reply}


@app.get("/tickets/{ticket_id}/outcome")
async def outcome(ticket_id: str) -> dict[str, Any]:
    handle = await outlive.get(ticket_id)
    return {"outcome": await handle.outcome(timeout="30s")}


STATUS: dict[type[errors.OutliveError], int] = {
    errors.RunNotFound: 404,
    errors.RunIdTaken: 409,
    errors.QuestionNotOpen: 409,
    errors.RunEnded: 409,
    errors.AnswerRefused: 422,
    errors.TimedOut: 504,
}


@app.exception_handler(errors.OutliveError)
async def refuse(_: Request, error: errors.OutliveError) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, STATUS.get(type(error), 500))
