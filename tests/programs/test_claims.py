"""The web page and its worker: both killed, and failing in ordinary ways."""

from __future__ import annotations

import re
import signal
from typing import Any

import httpx
import pytest

from tests.examples.conftest import Program
from tests.harness.processes import until
from tests.programs.conftest import Failure, Shell


class Site:
    """The page as a browser sees it, and the worker behind it."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.server = self.serve()

    def serve(self) -> Program:
        self.server = self.shell.start("uvicorn", "claims:app", "--port", "0")
        said = self.server.says("running on http://")
        self._url = re.findall(r"running on (http://\S+)", said)[0]
        return self.server

    def work(self, *words: str) -> Program:
        worker = self.shell.start("outlive", "worker", "claims", *words)
        worker.says("worker")
        return worker

    def hand_in(self, order: str = "7", claim: str = "c") -> tuple[int, Any]:
        return self._read(httpx.post(f"{self._url}/claims/{claim}", json={"order": order}))

    def get(self, path: str = "c") -> tuple[int, Any]:
        return self._read(httpx.get(f"{self._url}/claims/{path}", timeout=60))

    def decide(self, granted: Any = True, claim: str = "c") -> tuple[int, Any]:
        body = {"granted": granted, "by": "ann"}
        return self._read(httpx.post(f"{self._url}/claims/{claim}/decision", json=body))

    def asked(self) -> str:
        (question,) = until(lambda: self.get()[1]["questions"], "the question")
        return str(question)

    def _read(self, reply: httpx.Response) -> tuple[int, Any]:
        return reply.status_code, reply.json()


@pytest.fixture
def site(shell: Shell) -> Site:
    """A page that is up; no worker yet."""
    return Site(shell)


def test_it_goes_on_after_kills(site: Site) -> None:
    """Both are killed when the bank has booked: it is paid once, and the page says so."""
    worker = site.work()
    assert (202, {"id": "c"}) == site.hand_in()
    assert "Approve pay(order='7', cents=100)?" == site.asked()
    assert 200 == site.decide()[0]
    until(lambda: site.shell.lines("bank.jsonl"), "the bank")
    worker.kill()
    site.server.kill()

    site.serve()
    site.work()
    assert (200, {"outcome": "paid 100 cents, approved by ann"}) == site.get("c/outcome")
    assert 1 == len(site.shell.lines("bank.jsonl"))


def test_what_a_browser_does_wrong_is_told(site: Site) -> None:
    """A wrong id, a second order, a wrong answer, a second answer: each with its own sentence."""
    site.work()
    site.hand_in()
    site.asked()

    code, told = site.get("d")
    assert (404, True) == (code, "no run has the id 'd'" in told["detail"])
    code, told = site.hand_in("8")
    assert (409, True) == (code, "run id 'c' is taken" in told["detail"])
    code, told = site.decide("perhaps")
    assert (422, True) == (code, "0/approve#1 refuses this answer" in told["detail"])
    assert 200 == site.decide(False)[0]
    until(lambda: site.decide(True)[0] != 200, "the answer to be taken")
    code, told = site.decide(True)
    assert (409, True) == (code, "c" in told["detail"])
    assert {"outcome": "refused by ann"} == site.get("c/outcome")[1]


FAILURES = [
    Failure(
        name="an exception in a step",
        edits=(("    return 100 * len(order)", '    raise LookupError("no such order")'),),
        sees=("run c (flow claim) failed: LookupError: no such order", "claims.py", "in assess"),
    ),
    Failure(
        name="a value that can't be recorded",
        edits=(("    return 100 * len(order)", "    return open(__file__)"),),
        sees=("run c (flow claim) failed: ValueRefused: step 0/assess#1 returned, at $: a value",),
    ),
    Failure(
        name="a forgotten await",
        edits=(("cents = await assess", "cents = assess"),),
        sees=("run c (flow claim) failed", "assess was called and never awaited"),
    ),
    Failure(
        name="a step that takes too long",
        edits=(
            ('delay="50ms")', 'delay="50ms"), timeout="50ms"'),
            ("    return 100 * len(order)", "    await asyncio.sleep(9)\n    return 1"),
        ),
        sees=("run c (flow claim) failed: TimedOut: step 0/assess#1 took longer than 0.05 s",),
    ),
]


@pytest.mark.parametrize("failure", FAILURES, ids=str)
def test_a_failure_is_told(shell: Shell, failure: Failure) -> None:
    """In the worker's log, with the author's frames; the page gets the same sentence."""
    shell.edit("claims.py", *failure.edits)
    site = Site(shell)
    worker = site.work()
    site.hand_in()

    code, told = site.get("c/outcome")

    assert 500 == code
    assert told["detail"].startswith("run c failed: ")
    said = worker.says("run c (flow claim) failed")
    assert [] == [text for text in failure.sees if text not in said], said
    assert "failed" == site.get()[1]["status"]


def test_without_a_worker_the_page_is_told(site: Site) -> None:
    """It answers in time, and its log says what drives such runs."""
    site.hand_in()

    code, told = site.get("c/outcome")
    assert (504, True) == (code, "run c" in told["detail"])
    assert "outlive worker" in site.server.said()
    assert "outlive worker MODULE" in site.shell("outlive", "runs")


def test_a_worker_of_another_store_is_seen(site: Site) -> None:
    """The page's log says that nobody drives the run."""
    site.work("--store", "sqlite:///other.db")
    site.hand_in()

    assert 504 == site.get("c/outcome")[0]
    assert "outlive worker" in site.server.said()


def test_a_doubt_is_told_with_the_command(shell: Shell) -> None:
    """The worker's line has it; typed, the claim ends."""
    shell.edit(
        "claims.py",
        (", check=find_payment", ""),
        ("    await asyncio.sleep(BANK_SECONDS)", '    raise ConnectionResetError("hung up")'),
    )
    site = Site(shell)
    worker = site.work()
    site.hand_in()
    site.asked()
    site.decide()

    assert "run c (flow claim) is in doubt about effect 0/pay#1" in worker.says("outlive resolve c")
    assert "in_doubt" == site.get()[1]["status"]
    assert "outlive resolve c" in shell("outlive", "doctor", code=1)
    shell("outlive", "resolve", "c", "0/pay#1", "--happened", "100")
    assert {"outcome": "paid 100 cents, approved by ann"} == site.get("c/outcome")[1]


def test_changed_code_is_told(shell: Shell) -> None:
    """By the worker, by the page, by doctor."""
    shell.edit("claims.py", ('timeout="8s"', 'timeout="4s"'))
    site = Site(shell)
    worker = site.work()
    site.hand_in()
    site.asked()
    worker.kill()
    shell.edit("claims.py", ("cents = await assess(order)", "cents = await assess(order * 2)"))
    worker = site.work()
    site.decide()

    line = worker.says("run c (flow claim) can't go on: mismatch: ")
    assert "order='77'" in line
    assert 504 == site.get("c/outcome")[0]
    assert "mismatch: " in site.server.said()
    assert "mismatch: " in shell("outlive", "doctor", code=1)


def test_a_misspelt_module_is_told(shell: Shell) -> None:
    said = shell("outlive", "worker", "clams", code=2)

    assert 1 == said.count("\n"), said
    assert "clams" in said


def test_run_in_a_handler_is_refused(shell: Shell) -> None:
    """It would block the page."""
    shell.edit("claims.py", ("handle = await outlive.submit(", "handle = outlive.run("))
    site = Site(shell)

    code, told = site.hand_in()
    assert (500, True) == (
        code,
        "use `await outlive.start(...)` instead of run()" in told["detail"],
    )


def test_control_c_lets_the_effect_finish(site: Site) -> None:
    """The worker says that it stops; another one ends the claim, which is paid once."""
    worker = site.work()
    site.hand_in()
    site.asked()
    site.decide()
    until(lambda: site.shell.lines("bank.jsonl"), "the bank")
    worker.process.send_signal(signal.SIGINT)
    worker.end(0)

    site.work()
    assert {"outcome": "paid 100 cents, approved by ann"} == site.get("c/outcome")[1]
    assert 1 == len(site.shell.lines("bank.jsonl"))
