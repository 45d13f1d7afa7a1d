"""The agent on the openai client: killed while it pays, and failing in ordinary ways."""

from __future__ import annotations

import signal

import pytest

from tests.examples.conftest import Program
from tests.harness.processes import until
from tests.programs.conftest import Failure, Shell
from tests.programs.model_server import ModelServer

QUESTION = "I was charged twice for order 7"
AGENT = ("python", "agent.py", "t", QUESTION)
NO_CHECK = ('check=find_refund, timeout="3s", settle_after="100ms"', 'timeout="200ms"')


def start(shell: Shell, model: ModelServer, failure: Failure) -> Program:
    shell.edit("agent.py", *failure.edits)
    model.mood = failure.server
    return shell.start(*AGENT)


def test_it_goes_on_after_a_kill(shell: Shell, model: ModelServer) -> None:
    """Killed when the bank has booked: the model is not asked again, and the bank books once."""
    agent = shell.start(*AGENT)
    until(lambda: shell.lines("bank.jsonl"), "the bank")
    agent.kill()
    asked = len(model.asked)

    assert "Dear customer, refund: 1999 cents were given back.\n" == shell(*AGENT)
    assert ["refund:7"] == [entry["key"] for entry in shell.lines("bank.jsonl")]
    assert asked + 1 == len(model.asked)


FAILURES = [
    Failure(
        name="an order that does not exist",
        edits=(('"7": 1999, ', ""),),
        sees=("KeyError: '7'", 'agent.py", line ', "in look_up", "run t failed: KeyError: '7'"),
    ),
    Failure(
        name="a wrong API key",
        environment=(("OPENAI_API_KEY", "sk-wrong"),),
        sees=("run t failed: AuthenticationError: Error code: 401", "in think"),
    ),
    Failure(
        name="a wrong URL",
        environment=(("OPENAI_BASE_URL", "http://127.0.0.1:9/v1"),),
        sees=("run t failed: APIConnectionError: Connection error.", "caused by ConnectError"),
    ),
    Failure(
        name="a model that does not reply",
        server="silent",
        sees=("run t failed: TimedOut: step 0/think#1 took longer than 1 s", "in support"),
    ),
    Failure(
        name="a proxy's page instead of a reply",
        server="no json",
        sees=("run t failed: AttributeError: 'str' object has no attribute 'choices'", "in think"),
    ),
    Failure(
        name="a tool call that is not JSON",
        server="bad arguments",
        sees=("run t failed: JSONDecodeError: Expecting ',' delimiter", "in support"),
    ),
    Failure(
        name="a tool call with another argument",
        server="unknown argument",
        sees=("look_up() got an unexpected keyword argument 'number'", "in use"),
    ),
    Failure(
        name="a rate limit",
        server="rate limit",
        sees=("run t failed: RateLimitError: Error code: 429 - Rate limit reached", "in think"),
    ),
    Failure(
        name="a forgotten await",
        edits=(("await think(", "think("),),
        sees=("think was called and never awaited", "write `await think(...)`"),
    ),
    Failure(
        name="a client is returned",
        edits=(("return reply.choices[0].message", "return client"),),
        sees=("step 0/think#1 returned, at $: a value of type openai.AsyncOpenAI can't be",),
    ),
    Failure(
        name="a store that does not exist",
        environment=(("OUTLIVE_STORE", "sqllite:///runs.db"),),
        sees=("UnknownStore: no store speaks 'sqllite'; did you mean sqlite?",),
        status="",
    ),
]


@pytest.mark.parametrize("failure", FAILURES, ids=str)
def test_a_failure_is_told(
    shell: Shell, model: ModelServer, monkeypatch: pytest.MonkeyPatch, failure: Failure
) -> None:
    """By an exception with the author's own frames; the run says the same."""
    for name, value in failure.environment:
        monkeypatch.setenv(name, value)

    said = start(shell, model, failure).end(1)

    assert [] == [text for text in failure.sees if text not in said], said
    assert said.count("/outlive/app/") <= 3, said  # the way through Outlive is nobody's business
    if failure.status:
        assert failure.status == shell.status("t")


def test_a_caught_error_is_the_one_of_the_client(shell: Shell, model: ModelServer) -> None:
    """What the step declares comes to the flow as itself, with its attributes."""
    shell.edit(
        "agent.py",
        (
            "    while (message",
            "    try:\n        await think(messages)\n" + CATCH + "    while (m",
        ),
    )
    model.mood = "rate limit"

    assert "the model said 429\n" == shell(*AGENT)


CATCH = """    except openai.RateLimitError as error:
        return f"the model said {error.status_code}"
"""


def test_an_effect_in_doubt_waits_for_a_human_aloud(shell: Shell, model: ModelServer) -> None:
    """The line says what to type; typed, the script that waits goes on."""
    shell.edit("agent.py", NO_CHECK)
    agent = shell.start(*AGENT)

    said = agent.says("or --fail")
    assert "run t (flow support) is in doubt about effect 0/refund#1 (key refund:7)" in said
    assert "outlive resolve t '0/refund#1' --happened JSON" in said
    assert "in_doubt" == shell.status("t")
    shell("outlive", "resolve", "t", "0/refund#1", "--happened", "1999")
    assert agent.end().endswith("Dear customer, refund: 1999 cents were given back.\n")


def test_changed_code_is_told_with_both_sides(shell: Shell, model: ModelServer) -> None:
    """Nothing is done; put back, the code goes on."""
    agent = shell.start(*AGENT)
    until(lambda: shell.lines("bank.jsonl"), "the bank")
    agent.kill()
    old, new = "look_up(**arguments)} cents", "look_up(**arguments)} Euro cents"
    shell.edit("agent.py", (old, new))

    said = shell.start(*AGENT).end(1)
    assert "run t" in said
    assert "Euro cents" in said
    assert "outlive show t" in said
    shell.edit("agent.py", (new, old))
    assert "Dear customer, refund: 1999 cents were given back.\n" == shell(*AGENT)
    assert 1 == len(shell.lines("bank.jsonl"))


def test_control_c_names_the_step_and_the_way_on(shell: Shell, model: ModelServer) -> None:
    model.mood = "silent"
    shell.edit("agent.py", ('timeout="1s"', 'timeout="60s"'))
    agent = shell.start(*AGENT)
    until(lambda: model.asked, "the model to be asked")
    agent.process.send_signal(signal.SIGINT)

    said = agent.end(-signal.SIGINT)
    assert "run t was stopped and is safe" in said
    assert "0/think#1" in said.splitlines()[-1]
    assert "`outlive resume t agent` goes on with it" in said


def test_a_retry_that_helps_is_in_the_journal(shell: Shell, model: ModelServer) -> None:
    """Nobody is bothered; whoever looks sees both attempts that timed out."""
    model.mood = "busy twice"

    assert "Dear customer, refund: 1999 cents were given back.\n" == shell(*AGENT)
    assert 2 == shell("outlive", "show", "t").count("took longer than 1 s")
