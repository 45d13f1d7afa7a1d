"""The web app and its worker: either is killed, the customer notices a delay."""

from __future__ import annotations

import re
from typing import Any

import httpx

from tests.examples.conftest import Desk, Program
from tests.harness.processes import until


class Site:
    """The app as its users see it, wherever it runs at the moment."""

    def __init__(self, desk: Desk) -> None:
        desk.folder /= "web"
        self._desk = desk
        self.worker = self.hire()
        self.server = self.serve()

    def hire(self) -> Program:
        self.worker = self._desk.start("outlive", "worker", "tickets")
        return self.worker

    def serve(self) -> Program:
        self.server = self._desk.start("uvicorn", "app:app", "--port", "0")
        said = self.server.says("running on http://")
        self._address = re.findall(r"running on (http://\S+)", said)[0]
        return self.server

    def post(self, path: str, **body: Any) -> tuple[int, Any]:
        answer = httpx.post(f"{self._address}/tickets{path}", json=body, timeout=60)
        return answer.status_code, answer.json()

    def get(self, path: str) -> tuple[int, Any]:
        answer = httpx.get(f"{self._address}/tickets{path}", timeout=60)
        return answer.status_code, answer.json()

    def question(self, ticket: str) -> Any:
        asked = until(lambda: self.get(f"/{ticket}")[1].get("questions"), "the clerk to be asked")
        return asked[0]


def test_a_ticket_outlives_both_processes(desk: Desk) -> None:
    """Posted twice it is one ticket; one mail goes out; a message sent twice has one reply."""
    site = Site(desk)
    for _ in range(2):
        assert (202, {"id": "t-1"}) == site.post("", id="t-1", question="Where is it?")
    assert 409 == site.post("", id="t-1", question="Something else")[0]
    assert 404 == site.get("/t-2")[0]

    asked = site.question("t-1")
    assert "Send this? Thank you for writing “Where is it?”." == asked["text"]
    answer = {"question_id": asked["id"], "by": "ann"}
    assert 422 == site.post("/t-1/answers", value="perhaps", **answer)[0]
    assert 202 == site.post("/t-1/answers", value=True, **answer)[0]
    assert 409 == site.post("/t-1/answers", value=False, **answer)[0]

    until(lambda: desk.lines("mails.jsonl"), "the mail")
    site.worker.kill()
    site.server.kill()
    site.hire()
    site.serve()
    for _ in range(2):
        replied = site.post("/t-1/messages", id="m-1", text="Still not here")
        assert (200, {"reply": "Thank you for writing “Still not here”."}) == replied
    assert 200 == site.post("/t-1/messages", id="m-2", text="bye")[0]
    assert (200, {"outcome": "closed after 6 messages"}) == site.get("/t-1/outcome")
    assert 1 == len(desk.lines("mails.jsonl"))
    assert 409 == site.post("/t-1/messages", id="m-3", text="hello?")[0]
