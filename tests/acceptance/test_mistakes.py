"""What is said to people who make a mistake, word for word as docs/reference/mistakes.md has it.

Each program makes one mistake. What a person sees is compared with the row of its name: the page
can't promise other words, and no row is without a program.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import outlive
from outlive.errors import OutliveError
from tests.acceptance.conftest import Cli, Ran

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "mistakes.md"
ROW = re.compile(r"^\| (?P<mistake>[^|`]+) \| ``? ?(?P<said>[^|]+?) ?``? \| (?P<remedy>[^|]+) \|$")
SAID = {row["mistake"]: row["said"] for row in map(ROW.match, PAGE.read_text().splitlines()) if row}
NOBODY = 65534

Program = Callable[["Scene"], Any]
PROGRAMS: dict[str, Program] = {}


class Scene:
    """A folder, a shell in it, and a way to break things."""

    def __init__(self, cli: Cli, patch: pytest.MonkeyPatch) -> None:
        self.cli, self.patch, self.folder = cli, patch, cli.folder
        self.url = f"sqlite:///{cli.folder / 'runs.db'}"

    def write(self, name: str, text: str) -> None:
        """A file of the user's."""
        (self.folder / name).write_text(text)


def mistake(name: str) -> Callable[[Program], Program]:
    """A program that makes the mistake of this row."""

    def keep(program: Program) -> Program:
        PROGRAMS[name] = program
        return program

    return keep


def shown(text: str, folder: Path) -> str:
    """What is seen, without what differs from run to run."""
    text = text.replace(str(folder), "FOLDER").replace(__file__, "FILE")
    text = re.sub(r":\d+\b(?=,| |$)", ":LINE", text)
    text = re.sub(r"\brun [0-9a-f]{16}\b", "run RUN", text)
    return re.sub(r"\bline \d+\b", "line LINE", text)


@pytest.mark.parametrize("name", PROGRAMS, ids=lambda name: re.sub(r"\W+", "-", name))
def test_what_is_said(
    name: str, cli: Cli, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The words of the page: an error, a warning, or a line on standard error and an exit code."""
    scene = Scene(cli, monkeypatch)
    caplog.set_level(logging.WARNING)

    try:
        result = PROGRAMS[name](scene)
    except OutliveError as error:
        said = "; ".join([f"{type(error).__name__}: {error}", *_hints_of(error)])
    else:
        said = _said_without_error(result, caplog)

    assert SAID[name] == shown(said, cli.folder)


def _hints_of(error: BaseException) -> list[str]:
    """What the engine says below the frames of the user's own error."""
    notes = "\n".join(getattr(error.__cause__, "__notes__", ()))
    return [line for line in notes.splitlines() if "never awaited" in line]


def _said_without_error(result: object, caplog: pytest.LogCaptureFixture) -> str:
    if isinstance(result, Ran):
        assert "Traceback" not in result.err
        return f"{result.err.strip()} (exit code {result.code})"
    return "; ".join(
        f"{record.levelname.lower()}: {record.getMessage()}" for record in caplog.records
    )


def test_the_page_has_these_mistakes_and_no_others() -> None:
    """At least twenty-five, each tried above."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]

    assert list(PROGRAMS) == list(SAID)
    assert len(rows) - len(SAID) == 2 * PAGE.read_text().count("| mistake |")
    assert len(SAID) >= 25


# ---------------------------------------------------------------- what users wrote


@outlive.step
async def look(order: int) -> int:
    """A step."""
    return order


@outlive.step
async def look_twice(order: int) -> int:
    """Another step."""
    return 2 * order


@outlive.effect
async def pay(cents: int) -> int:
    """An effect."""
    return cents


@outlive.flow
async def answer(number: int = 1) -> int:
    """A flow that is right."""
    return number


@outlive.flow
async def ask_a_number() -> int:
    """A flow that waits."""
    return await outlive.ask("How many?", type=int)


def run(flow: Any, *args: Any, store: str = "memory://", **options: Any) -> Any:
    """As a script does it."""
    return outlive.run(flow, *args, store=store, **options)


def run_body(body: Callable[[], Awaitable[Any]]) -> Any:
    """Run this as the code of a flow."""

    @outlive.flow
    async def support() -> Any:
        return await body()

    return run(support)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without the rights of root, if the tests have them."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


def key_of(number: int) -> str:
    """A key for a store."""
    return base64.b64encode(bytes([number]) * 32).decode()


async def run_sealed(url: str, key: str | None) -> int:
    """Run a flow on a store with a key."""
    async with outlive.open(url, key=key) as app:
        handle = await app.start(answer, id="order-7")
        return await handle


# ---------------------------------------------------------------- the code of flows


@mistake("a step is called without await")
def forgotten_await(scene: Scene) -> Any:
    async def body() -> int:
        look(7)
        return 1

    return run_body(body)


@mistake("a step's outcome is used without await")
def used_without_await(scene: Scene) -> Any:
    async def body() -> int:
        return look(7) + 1  # type: ignore[operator]

    return run_body(body)


@mistake("the flow has no decorator")
def no_flow_decorator(scene: Scene) -> Any:
    async def support() -> int:
        return 1

    return run(support)


@mistake("the flow is called instead of given")
def flow_called(scene: Scene) -> Any:
    return run(answer(7))


@mistake("a step is started as if it was a flow")
def step_started(scene: Scene) -> Any:
    return run(look, 7)


@mistake("I/O in a flow, because the step has no decorator")
def io_in_flow(scene: Scene) -> Any:
    async def body() -> None:
        await asyncio.open_connection("127.0.0.1", 9)

    return run_body(body)


@mistake("a thread in a flow")
def thread_in_flow(scene: Scene) -> Any:
    async def body() -> float:
        return await asyncio.to_thread(time.time)

    return run_body(body)


@mistake("a call that blocks in a flow")
def blocking_call(scene: Scene) -> Any:
    async def body() -> int:
        time.sleep(0.6)  # the mistake
        return await look(7)

    return run_body(body)


@mistake("an effect outside a run")
def effect_outside(scene: Scene) -> Any:
    return asyncio.run(pay(5))


@mistake("a wait outside a run")
def wait_outside(scene: Scene) -> Any:
    return asyncio.run(outlive.sleep("1s"))


@mistake("an effect inside a step")
def effect_inside_step(scene: Scene) -> Any:
    @outlive.step
    async def settle() -> int:
        return await pay(5)

    return run_body(settle)


@mistake("a set is given to map")
def set_to_map(scene: Scene) -> Any:
    async def body() -> Any:
        return await outlive.map(look, {1, 2})

    return run_body(body)


@mistake("a step returns what can't be recorded")
def outcome_refused(scene: Scene) -> Any:
    @outlive.step
    async def connect() -> Any:
        return {"client": [threading.Lock()]}

    return run_body(connect)


@mistake("a step is given what can't be recorded")
def argument_refused(scene: Scene) -> Any:
    @outlive.step
    async def search(client: Any) -> int:
        return 1

    async def body() -> int:
        return await search(threading.Lock())

    return run_body(body)


@mistake("run() in async code")
def run_in_async_code(scene: Scene) -> Any:
    async def main() -> Any:
        return run(answer)

    return asyncio.run(main())


# ---------------------------------------------------------------- declarations


@mistake("a misspelt option of a step")
def option_of_step(scene: Scene) -> Any:
    options: dict[str, Any] = {"retires": 3}
    return outlive.step(**options)


@mistake("a misspelt option of an effect")
def option_of_effect(scene: Scene) -> Any:
    options: dict[str, Any] = {"chek": None}
    return outlive.effect(**options)


@mistake("a misspelt value of an option")
def value_of_option(scene: Scene) -> Any:
    options: dict[str, Any] = {"doubt": "rety"}
    return outlive.effect(**options)


@mistake("a key that names no parameter")
def key_of_nothing(scene: Scene) -> Any:
    @outlive.effect(key="refund:{oder}")
    async def refund(order: int) -> int:
        return order

    return refund


@mistake("a duration that is none")
def bad_duration(scene: Scene) -> Any:
    return outlive.step(timeout="5 parsecs")(look.plain)


@mistake("a step that is a generator")
def generator(scene: Scene) -> Any:
    @outlive.step
    async def tokens() -> Any:
        yield 1

    return tokens


@mistake("a lambda without a name")
def nameless(scene: Scene) -> Any:
    return outlive.step(lambda order: order)


# ---------------------------------------------------------------- runs


@mistake("an id that no run has")
def unknown_id(scene: Scene) -> Any:
    async def main() -> None:
        async with outlive.open("memory://") as app:
            await app.get("order-8")

    asyncio.run(main())


@mistake("an id that is not a text")
def number_as_id(scene: Scene) -> Any:
    wrong: Any = 7
    return run(answer, id=wrong)


@mistake("the same id with other arguments")
def same_id(scene: Scene) -> Any:
    run(answer, 1, id="order-7", store=scene.url)
    scene.write("later.py", LATER)
    ran = scene.cli("run", "later:answer", "--id", "order-7", "--input", "[2]")
    assert ran.code == 2
    return ran


LATER = """
import outlive

@outlive.flow
async def answer(number: int = 1) -> int:
    return number
"""


@mistake("the code was changed under a run")
def changed_code(scene: Scene) -> Any:
    @outlive.flow(name="support")
    async def before() -> int:
        return await look(7) + await outlive.ask("How many?", type=int)

    @outlive.flow(name="support")
    async def after() -> int:
        return await look_twice(7) + await outlive.ask("How many?", type=int)

    async def main() -> None:
        async with outlive.open(scene.url) as app:
            await (await app.start(before, id="order-7")).question()
        async with outlive.open(scene.url) as app:
            await (await app.start(after, id="order-7"))

    asyncio.run(main())


@mistake("an answer of the wrong type")
def wrong_answer(scene: Scene) -> Any:
    async def main() -> None:
        async with outlive.open("memory://") as app:
            handle = await app.start(ask_a_number, id="order-7")
            await handle.answer("many", await handle.question())

    asyncio.run(main())


@mistake("a cancelled run is awaited")
def cancelled(scene: Scene) -> Any:
    async def main() -> None:
        async with outlive.open("memory://") as app:
            handle = await app.start(ask_a_number, id="order-7")
            await handle.question()
            await handle.cancel()
            await handle

    asyncio.run(main())


@mistake("nobody answers the question")
def unanswered(scene: Scene) -> Any:
    return run(ask_a_number, id="order-7", on_wait="raise")


@mistake("a run goes on with a module that lacks its flow")
def lacking_flow(scene: Scene) -> Any:
    async def main() -> None:
        async with outlive.open(scene.url, drive=False) as app:
            await app.submit("support", id="order-7")

    asyncio.run(main())
    return scene.cli("resume", "order-7", "shop")


# ---------------------------------------------------------------- stores and settings


@mistake("a misspelt store URL")
def misspelt_url(scene: Scene) -> Any:
    return run(answer, store="sqllite:///runs.db")


@mistake("a path instead of a store URL")
def path_as_url(scene: Scene) -> Any:
    return run(answer, store="runs.db")


@mistake("the store's file is something else")
def not_a_store(scene: Scene) -> Any:
    scene.write("notes.txt", "not a database\n" * 100)
    return run(answer, store=f"sqlite:///{scene.folder}/notes.txt")


@mistake("the folder is read-only")
def read_only_folder(scene: Scene) -> Any:
    folder = Path(tempfile.mkdtemp(prefix="outlive-mistakes-"))
    folder.chmod(0o555)
    try:
        with as_nobody():
            return run(answer, store=f"sqlite:///{folder}/runs.db")
    except OutliveError as error:
        raise type(error)(str(error).replace(str(folder), "FOLDER")) from None
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


@mistake("the disk is full")
def full_disk(scene: Scene) -> Any:
    from outlive.stores.sqlite import store as sqlite

    connect = sqlite.connect_sqlite3

    def connect_small(*args: Any, **options: Any) -> Any:
        db = connect(*args, **options)
        db.execute("PRAGMA max_page_count = 100")
        return db

    @outlive.flow
    async def support(text: str) -> str:
        return text

    scene.patch.setattr(sqlite, "connect_sqlite3", connect_small)
    return run(support, os.urandom(3_000_000).hex(), store=scene.url)


@mistake("the wrong key")
def wrong_key(scene: Scene) -> Any:
    asyncio.run(run_sealed(scene.url, key_of(1)))
    asyncio.run(run_sealed(scene.url, key_of(2)))


@mistake("no key, because the environment lacks it")
def no_key(scene: Scene) -> Any:
    asyncio.run(run_sealed(scene.url, key_of(1)))
    return scene.cli("show", "order-7")


@mistake("a key that is none")
def bad_key(scene: Scene) -> Any:
    asyncio.run(run_sealed(scene.url, "swordfish"))


@mistake("a setting that makes no sense")
def bad_setting(scene: Scene) -> Any:
    return scene.cli("runs", OUTLIVE_LEASE_SECONDS="soon")


WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
from outlive.cli import main
sys.exit(main(["runs"]))
"""


def runs_without(scene: Scene, package: str, **environment: str) -> Ran:
    """``outlive runs`` where a package is not installed."""
    code = WITHOUT.format(package=package)
    scene.patch.setattr(scene.cli, "command", lambda *words: [sys.executable, "-c", code])
    return scene.cli(**environment)


@mistake("PostgreSQL without its driver")
def no_psycopg(scene: Scene) -> Any:
    return runs_without(scene, "psycopg", OUTLIVE_STORE="postgresql://127.0.0.1:1/runs")


@mistake("a key without the cryptography package")
def no_cryptography(scene: Scene) -> Any:
    run(answer, id="order-7", store=scene.url)
    return runs_without(scene, "cryptography", OUTLIVE_KEY=key_of(1))


@mistake("a module that can't be found")
def no_module(scene: Scene) -> Any:
    return scene.cli("run", "shopp:greet")


@mistake("a flow that the module lacks")
def no_flow_in_module(scene: Scene) -> Any:
    return scene.cli("run", "shop:great")


@mistake("a misspelt command")
def misspelt_command(scene: Scene) -> Any:
    return scene.cli("rnus")


@mistake("a misspelt setting")
def misspelt_setting(scene: Scene) -> Any:
    run(answer, id="order-7", store=scene.url)
    return scene.cli("runs", OUTLIVE_STOR="sqlite:///other.db")


@mistake("looking into a store that is not there")
def no_store(scene: Scene) -> Any:
    return scene.cli("runs")
