"""What is redacted is nowhere in what a store holds, and runs go on as if it were."""

from __future__ import annotations

import asyncio
import logging
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import outlive
from outlive.app.open import open_app
from outlive.errors import DefinitionRefused, RunFailed, UsageError, ValueRefused
from outlive.journal.redaction import Hider
from outlive.model.redaction import MARK, parse_redaction
from outlive.settings import Settings
from tests.conftest import Figure
from tests.redaction import flows
from tests.redaction.flows import NAMED, PATTERN, PLANTED, busy, failing, given

RULES = outlive.Redaction(names=("pin",), patterns=(PATTERN,))


@pytest.fixture(autouse=True)
def _forget() -> None:
    given.clear()


async def live_it(
    url: str, redaction: outlive.Redaction | None, look: Callable[[], object] = lambda: None
) -> str:
    """Runs that meet every secret and end; then a look, before the store is closed."""
    async with open_app(url, key="", redaction=redaction) as app:
        asked = busy.options(id="b", tags={"team": flows.TAG}, pins={"model": flows.PIN})
        handle = await app.start(asked, flows.FLOW_ARG)
        await handle.signal("word", flows.SIGNAL)
        while not await handle.questions():
            await asyncio.sleep(0.01)
        await handle.answer(flows.ANSWER)
        await handle.request("message", flows.REQUEST)
        outcome = await handle.outcome()
        with pytest.raises(RunFailed):
            await (await app.start(failing, id="f")).outcome()
        if url.startswith("sqlite"):
            await (await app.start(flows.booking, id="t")).outcome()
        look()
        return outcome


def found_in(folder: Path) -> set[str]:
    """The secrets that can be read in what a store of this folder holds."""
    data = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    for path in folder.rglob("*.db"):
        with sqlite3.connect(path) as connection:
            data += _opened(connection)
    return {each for each in (*PLANTED, *NAMED) if any(each.encode() in some for some in data)}


def _opened(connection: sqlite3.Connection) -> list[bytes]:
    """The nodes of values, which are compressed where that saves something."""
    from outlive.journal.codec.values import Damaged, opened

    found = []
    for (body,) in connection.execute("SELECT body FROM nodes"):
        try:
            found.append(opened(body))
        except Damaged:
            found.append(body)
    return found


async def test_no_secret_is_in_the_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, figure: Figure
) -> None:
    """Neither in the file nor in its log of writes, its values or what is logged meanwhile."""
    seen: set[str] = set()
    secrets = {*PLANTED, *NAMED}
    with caplog.at_level(logging.DEBUG):
        for name, rules in (("redacted", RULES), ("plain", None)):
            (tmp_path / name).mkdir()
            url = f"sqlite:///{tmp_path / name / 'o.db'}"
            if rules is None:
                assert not [secret for secret in secrets if secret in caplog.text]
            await live_it(url, rules, lambda: seen.update(found_in(tmp_path / "redacted")))

    plain = found_in(tmp_path / "plain")
    assert set() == seen | found_in(tmp_path / "redacted")
    # What a decorator names is hidden in every app.
    assert secrets - {flows.PASSWORD, flows.ELSEWHERE, flows.BOOKING} == plain
    figure("redacted: secrets in the files", f"0 of {len(secrets)}, without rules {len(plain)}")


async def test_bodies_get_what_the_flow_gave_them() -> None:
    """Only the journal has marks: steps and effects are called with the real arguments."""
    outcome = await live_it("memory://", RULES)

    assert MARK == outcome
    question, note, letter, many, stumbled, (password, more), told = given
    assert (flows.STEP_ARG, flows.EFFECT_ARG) == (question, note)
    assert isinstance(letter, flows.Letter)
    assert letter == flows.Letter(
        flows.NESTED, flows.LARGE.encode() * 100, {flows.KEYS: [flows.NESTED]}
    )
    assert many == [{"role": "user", "content": flows.LARGE + "x" * 600}] * 10
    assert (flows.PASSWORD, {"pin": flows.PIN_CODE}) == (password, more)
    # What came back to the flow, live as on replay, is what was recorded.
    assert f"('at {MARK}', ['{MARK}'])" == stumbled
    assert f"ann: {MARK} is wrong" == told


@outlive.step(redact=("secret",))
async def use(secret: str, of: list[str]) -> list[str]:
    given.append((secret, list(of)))
    of.append("changed by the body")
    return of


@outlive.flow
async def patient(first: str) -> list[str]:
    mine = [flows.NESTED, "plain"]
    await use("first secret", mine)
    await outlive.wait_signal("go")
    await use("second secret", mine)
    return mine


async def test_a_resumed_run_goes_on(tmp_path: Path) -> None:
    """What a later process needs comes from the flow's own code; nothing differs on replay."""
    url = f"sqlite:///{tmp_path / 'o.db'}"
    async with open_app(url, key="", redaction=RULES) as app:
        handle = await app.start(patient, "x", id="p")
        while len(given) < 1:
            await asyncio.sleep(0.01)
    async with open_app(url, key="", redaction=RULES) as app:
        handle = await app.start(patient, "x", id="p")
        await handle.signal("go", None)

        assert [flows.NESTED, "plain"] == await _plainly(handle)
    assert [("first secret", [flows.NESTED, "plain"]), ("second secret", [flows.NESTED, "plain"])] \
        == given  # fmt: skip


async def _plainly(handle: Any) -> Any:
    """The outcome is redacted, too, as everything that comes out of a journal."""
    outcome = await handle.outcome()
    assert [MARK, "plain"] == outcome
    return [flows.NESTED, *outcome[1:]]


@pytest.mark.parametrize(("before", "after"), [(None, RULES), (RULES, None)])
async def test_rules_may_change_while_runs_are_under_way(
    tmp_path: Path, before: outlive.Redaction | None, after: outlive.Redaction | None
) -> None:
    """What was recorded under other rules is taken for the same call."""
    url = f"sqlite:///{tmp_path / 'o.db'}"
    async with open_app(url, key="", redaction=before) as app:
        await app.start(patient, "x", id="p")
        while len(given) < 1:
            await asyncio.sleep(0.01)
    async with open_app(url, key="", redaction=after) as app:
        handle = await app.start(patient, "x", id="p")
        await handle.signal("go", None)
        await handle.outcome()

    calls: list[Any] = given
    assert ["first secret", "second secret"] == [secret for secret, _ in calls]


undone: list[object] = []


async def take_back(outcome: str, card: str = "not known here") -> None:
    undone.append(card)


@outlive.effect(redact=("card",), doubt="retry", undo=take_back)
async def reserve(card: str, seats: int) -> str:
    return "reserved"


@outlive.flow
async def travel(chapter: int = 0) -> None:
    if chapter == 0:
        await reserve("4111 1111 1111 1111", 2)
        await outlive.carry(1)
    await reserve("4222 2222 2222 2222", 1)
    raise RuntimeError("no seats")


async def test_undo_gets_what_is_at_hand() -> None:
    """In its own chapter an undo gets the real argument; in a later one none, not the mark."""
    undone.clear()
    async with open_app("memory://", key="") as app:
        with pytest.raises(RunFailed):
            await (await app.start(travel)).outcome()

    assert ["4222 2222 2222 2222", "not known here"] == undone


@outlive.flow
async def asking() -> bool:
    said = await outlive.approve(reserve, "4111 1111 1111 1111", 3)
    if said.granted:
        await reserve("4111 1111 1111 1111", 3)
    return said.granted


async def test_an_approval_shows_no_secret_and_still_counts() -> None:
    """The question has the mark in its place; a yes lets the call through."""
    async with open_app("memory://", key="") as app:
        handle = await app.start(asking)
        while not (questions := await handle.questions()):
            await asyncio.sleep(0.01)
        assert f"Approve reserve(card='{MARK}', seats=3)?" == questions[0].text
        await handle.answer(True)
        assert await handle.outcome()


# ---------------------------------------------------------------- what is refused


@outlive.flow
async def with_pin(pin: str) -> str:
    return pin


@outlive.flow
async def with_child() -> str:
    return await outlive.call(with_pin, "4711")


async def test_a_runs_own_argument_can_not_be_hidden_by_name() -> None:
    """A run gets its arguments from its journal: a redacted one is refused where it is given."""
    async with open_app("memory://", key="", redaction=RULES) as app:
        with pytest.raises(ValueRefused, match="argument 'pin' of flow with_pin is redacted"):
            await app.start(with_pin, "4711")
        with pytest.raises(ValueRefused, match="read it in a step"):
            await app.submit("with_pin", pin="4711")
        with pytest.raises(RunFailed, match="argument 'pin'"):
            await (await app.start(with_child)).outcome()


@outlive.effect(key="charge:{card}", redact=("card",), doubt="retry")
async def keyed(card: str) -> None: ...


@outlive.effect(key=lambda note: f"note:{note}", doubt="retry")
async def noted(note: str) -> None: ...


@outlive.flow
async def charging(effect: str) -> None:
    if effect == "keyed":
        await keyed("no")
    await noted(flows.NESTED)


@pytest.mark.parametrize("effect", ["keyed", "noted"])
async def test_no_key_is_made_of_what_is_hidden(effect: str) -> None:
    """A key is stored, and two secrets must not share one."""
    async with open_app("memory://", key="", redaction=RULES) as app:
        with pytest.raises(RunFailed, match=f"the key of effect {effect} holds what is redacted"):
            await (await app.start(charging, effect)).outcome()


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ({"names": "password"}, "names are several"),
        ({"names": None}, "names are several, and None is not"),
        ({"patterns": 5}, "patterns are several, and 5 is not"),
        ({"names": ("a b",)}, "can't be the name of a parameter"),
        ({"patterns": ("(",)}, "is not a regular expression"),
        ({"patterns": ("a*",)}, "matches nothing at all"),
        ({"patterns": (re.compile(b"a"),)}, "is for bytes"),
    ],
)
def test_rules_without_sense_are_refused(rules: dict[str, Any], why: str) -> None:
    """What a rule says is looked at when it is made."""
    with pytest.raises(DefinitionRefused, match=why):
        outlive.Redaction(**rules)


def test_a_decorator_names_parameters() -> None:
    """A name that the function does not have is refused with the name."""

    @outlive.step(redact=("passwort",))
    async def step(password: str) -> None: ...

    with pytest.raises(DefinitionRefused, match="redact='passwort' is no parameter of it"):
        step.definition.bind("x")
    with pytest.raises(DefinitionRefused, match="names parameters"):
        outlive.step(redact="password")(step.plain)  # type: ignore[call-overload]


def test_the_environment_says_the_same() -> None:
    """Names with commas between them, and one pattern; sense is asked of both."""
    said = {"OUTLIVE_REDACT": "password, token", "OUTLIVE_REDACT_PATTERN": "sk-[a-z]+"}
    settings = Settings.from_environment(said)

    rules = parse_redaction(settings.redact, settings.redact_pattern)

    assert outlive.Redaction(names=("password", "token"), patterns=("sk-[a-z]+",)) == rules
    assert parse_redaction("", "") is None
    with pytest.raises(UsageError, match=r"OUTLIVE_REDACT_PATTERN: .* not a regular expression"):
        parse_redaction("", "(")


# ---------------------------------------------------------------- logs and odd values


async def test_logs_are_cleared(caplog: pytest.LogCaptureFixture) -> None:
    """Messages, their arguments and tracebacks; of another app's log nothing is touched."""
    logger = logging.getLogger("outlive")
    async with open_app("memory://", key="", redaction=RULES):
        logger.warning("it is %s", flows.ERROR)
        try:
            raise RuntimeError(flows.ERROR)
        except RuntimeError:
            logger.exception("it failed")
    logger.warning("and now %s", flows.TAG)

    assert flows.ERROR not in caplog.text
    assert f"RuntimeError: {MARK}" in caplog.text
    assert flows.TAG in caplog.text


@pytest.mark.parametrize(
    "value",
    [
        (flows.TAG, {flows.TAG: 1}),
        {f"{flows.TAG}1", f"{flows.TAG}2"},
        {1: flows.TAG, flows.PIN: 2},
        bytearray(flows.TAG.encode()) + b"\xff",
        [{flows.TAG: 1, flows.PIN: 2}],
        "x" * 600 + flows.TAG,
    ],
)
def test_values_of_any_kind_are_cleared(value: Any) -> None:
    """Wherever a text can stand in a value; the value can be read afterwards."""
    from outlive.engine.definitions import registry
    from outlive.journal.codec.codec import codec_for
    from outlive.journal.codec.parts import whole

    codec = codec_for([], registry)
    cleared = Hider(RULES).value(codec.write(value))

    assert b"sk-live" not in whole(cleared)
    assert type(value) is type(codec.decode(cleared))
    assert codec.same(cleared, codec.write(value)) or isinstance(value, (set, dict, list, tuple))
    assert Hider(RULES).value(cleared) == cleared


def test_json_of_any_kind_is_cleared() -> None:
    """Answers and signals from elsewhere; even what is no JSON."""
    hider = Hider(RULES)
    raw = msgspec.json.encode({"a": [flows.TAG, 1]})

    assert {"a": [MARK, 1]} == msgspec.json.decode(hider.json(raw))
    assert MARK.encode() == hider.json(flows.TAG.encode())
    assert b"[1, 2]" == hider.json(b"[1, 2]")
