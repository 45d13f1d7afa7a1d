"""Whatever is typed wrong gets one line with the remedy and its exit code; nothing is changed."""

from __future__ import annotations

import contextlib
import io
import sqlite3
from pathlib import Path

import pytest

from outlive.cli import main
from tests.acceptance.conftest import Cli, Ran

NAMES = {
    "path": "../../etc/passwd",
    "quotes": """it's "quoted" `here`; $(true)""",
    "dash": "-run",
    "space": "  ",
    "look-alike": "раypal",
    "newline": "a\nb",
    "escape": "\x1b[2Jx",
    "sql": "'; DROP TABLE runs; --",
    "512 bytes": "é" * 256,
}


def assert_refused(ran: Ran, code: int, *words: str) -> None:
    """One line on standard error, none on standard output."""
    assert code == ran.code, ran.err
    assert "" == ran.out
    (line,) = ran.err.splitlines()
    assert line.startswith("outlive")
    for word in words:
        assert word in line, line


def here(*words: str) -> Ran:
    """The command in this process, for what no operating system passes on."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(words))
    return Ran(code, out.getvalue(), err.getvalue())


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("runs.db", "is not the URL of a store; use one of"),
        ("mysql://localhost/runs", "no store speaks 'mysql'; use one of"),
        ("redis://localhost/runs", "not in this release; use one of"),
        ("sqlite://runs.db", "three slashes"),
        ("sqlite:///", "names no file"),
        ("memory://name", "write memory://"),
    ],
)
def test_an_unknown_store(cli: Cli, url: str, word: str) -> None:
    """Every command says which stores there are."""
    before = sorted(cli.folder.iterdir())

    assert_refused(cli("run", "shop:greet", "--store", url), 2, word)
    assert_refused(cli("runs", "--store", url), 2, word)
    assert before == [path for path in sorted(cli.folder.iterdir()) if path.name != "__pycache__"]


@pytest.mark.parametrize(
    "words",
    [
        ("runs",),
        ("show", "r"),
        ("verify",),
        ("resume", "r", "shop"),
        ("resolve", "r", "s", "--fail"),
    ],
)
def test_looking_at_a_store_that_is_not_there_does_not_make_it(
    cli: Cli, words: tuple[str, ...]
) -> None:
    """A slip in the path is not answered with an empty store."""
    assert_refused(cli(*words), 3, "there is no store at", "--store")
    assert not cli.database.exists()


def test_a_file_that_is_no_database(cli: Cli) -> None:
    """It is left as it was."""
    content = b"dear diary, " * 1000
    cli.database.write_bytes(content)

    for words in (("run", "shop:greet"), ("runs",), ("verify",)):
        assert_refused(cli(*words), 3, "is not a SQLite database; choose another file")
    assert content == cli.database.read_bytes()


def test_a_folder_in_place_of_a_file(cli: Cli) -> None:
    """What can't be opened is named."""
    cli.database.mkdir()

    assert_refused(cli("runs"), 3, str(cli.database))


def test_a_database_of_another_program(cli: Cli) -> None:
    """It is left as it was."""
    db = sqlite3.connect(cli.database)
    db.execute("CREATE TABLE diary (day TEXT)")
    db.commit()
    db.close()
    content = cli.database.read_bytes()

    assert_refused(cli("run", "shop:greet"), 3, "another program's database; choose another file")
    assert content == cli.database.read_bytes()


def test_a_database_of_a_newer_schema(cli: Cli) -> None:
    """Both versions are named, and it is left as it was."""
    cli("run", "shop:greet", "--id", "a")
    db = sqlite3.connect(cli.database)
    db.execute("UPDATE meta SET value = '999' WHERE name = 'outlive.schema'")
    db.commit()
    db.close()
    content = cli.database.read_bytes()

    for words in (("run", "shop:greet"), ("runs",), ("verify",), ("worker", "shop")):
        assert_refused(cli(*words), 3, "schema 999", "use the release that made it")
    assert content == cli.database.read_bytes()


def test_a_record_of_a_newer_format(cli: Cli) -> None:
    """A run that a later release wrote is refused by name, not read by guess."""
    from outlive.journal.record import LINK_START

    cli("run", "shop:greet", "--id", "a")
    db = sqlite3.connect(cli.database)
    (body,) = db.execute("SELECT body FROM records WHERE seq = 1").fetchone()
    db.execute("UPDATE records SET body = ? WHERE seq = 1", (newer(body, "a", LINK_START),))
    db.commit()
    db.close()

    assert_refused(cli("run", "shop:greet", "--id", "a"), 3, "record format 9", "format 1")


def newer(body: bytes, run_id: str, prev: bytes) -> bytes:
    """The same record, whole, but in format 9."""
    from hashlib import blake2b

    placed = body[:2] + b"\x09" + body[3:32]
    link = blake2b(prev + placed + run_id.encode(), digest_size=16).digest()
    return placed + link + body[48:]


def test_a_flow_that_is_not_registered_here(cli: Cli) -> None:
    """The flow's name, what is known, and what to do."""
    sleeper = cli.start("run", "shop:nap", "--id", "n", "--input", "[600]")
    assert sleeper.stderr is not None
    assert "sleeps" in sleeper.stderr.readline()
    sleeper.kill()
    sleeper.wait()
    (cli.folder / "other.py").write_text("import outlive\n@outlive.flow\nasync def dig(): ...\n")
    before = cli.rows()

    assert_refused(cli("resume", "n"), 2, "'nap' is not registered", "known: none", "module")
    assert_refused(cli("resume", "n", "other"), 2, "'nap' is not registered", "known: dig")
    assert before == cli.rows()


def test_a_flow_of_another_version(cli: Cli) -> None:
    """Both versions are named, and the remedy."""
    sleeper = cli.start("run", "shop:versioned", "--id", "v")
    assert sleeper.stderr is not None
    assert "sleeps" in sleeper.stderr.readline()
    sleeper.kill()
    sleeper.wait()
    before = cli.rows()

    for words in (("resume", "v", "shop"), ("run", "shop:versioned", "--id", "v")):
        ran = cli(*words, SHOP_VERSION="2")
        assert_refused(ran, 3, "version '1'", "drives 2", "accepts=")
    assert before == cli.rows()


def test_a_run_id_with_other_arguments(cli: Cli) -> None:
    """Neither other arguments nor another flow get an id that is taken."""
    cli("run", "shop:greet", "--id", "a", "--input", '["Ada"]')
    before = cli.rows()

    other = cli("run", "shop:greet", "--id", "a", "--input", '["Bob"]')
    assert_refused(other, 2, "other arguments; choose another id")
    assert_refused(cli("run", "shop:fail", "--id", "a", "--input", "[1]"), 2, "flow 'greet'", "id")
    assert before == cli.rows()


def test_an_effect_outside_a_run(cli: Cli) -> None:
    """The line names the effect and the way out."""
    (cli.folder / "hasty.py").write_text("import shop\nshop.refund(shop.Order('1', 2))\n")

    assert_refused(cli("run", "hasty:x"), 2, "refund was called outside a run", "refund.plain(")
    assert not cli.database.exists()
    assert not (cli.folder / "ledger").exists()


def test_an_unknown_run(cli: Cli) -> None:
    """For every command that takes one."""
    cli("run", "shop:greet", "--id", "a")
    before = cli.rows()

    for words in (
        ("show", "nobody"),
        ("resume", "nobody", "shop"),
        ("resolve", "nobody", "step", "--fail"),
        ("verify", "nobody"),
    ):
        assert_refused(cli(*words), 2, "no run has the id 'nobody'", "`outlive runs`")
    assert before == cli.rows()


@pytest.mark.parametrize("text", ["{", "nope", "[1,]", '{"a": NaN}', "[" * 5000, "\\xff"])
def test_malformed_json(cli: Cli, text: str) -> None:
    """It says that it is no JSON, and shows some."""
    assert_refused(
        cli("run", "shop:greet", "--input", text), 2, "--input is not JSON", "--input '["
    )
    cli("run", "shop:greet", "--id", "a")
    before = cli.rows()
    assert_refused(cli("resolve", "a", "s", "--happened", text), 2, "--happened is not JSON")
    assert before == cli.rows()


@pytest.mark.parametrize(
    ("flow", "text", "word"),
    [
        ("greet", "3", "--input is a list or an object"),
        ("greet", '["a", "b"]', "too many positional arguments"),
        ("greet", '{"who": "a"}', "unexpected keyword argument 'who'"),
        ("buy", "[]", "missing a required argument: 'order'"),
        ("buy", '[{"id": "7"}]', "argument 'order': Object missing required field `cents`"),
        ("buy", '[{"id": "7", "cents": "x"}]', "argument 'order': Expected `int`, got `str`"),
        ("buy", '[{"id": "7", "cents": 1}, "noon"]', "argument 'at': Invalid RFC3339"),
    ],
)
def test_arguments_that_the_flow_does_not_take(cli: Cli, flow: str, text: str, word: str) -> None:
    """The line names the argument, and no store is made."""
    assert_refused(cli("run", f"shop:{flow}", "--input", text), 2, word)
    assert not cli.database.exists()


@pytest.mark.parametrize(
    ("named", "word"),
    [
        ("shop", "write MODULE:FLOW"),
        ("shop:", "write MODULE:FLOW"),
        ("shop:nothing", "has no flow 'nothing' (it has: buy"),
        ("shop:look_up", "has no flow 'look_up'"),
        ("nowhere:greet", "there is no module 'nowhere'"),
        ("shop.py:greet", "write the module's name: support, not support.py"),
        ("broken:x", "module broken can't be imported: SyntaxError"),
        ("needy:x", "module needy needs 'no_such_thing', which is not installed"),
        ("quitter:x", "module quitter can't be imported: SystemExit"),
    ],
)
def test_a_module_or_flow_that_is_not_there(cli: Cli, named: str, word: str) -> None:
    """The line says what there is instead."""
    (cli.folder / "broken.py").write_text("def f(:\n")
    (cli.folder / "needy.py").write_text("import no_such_thing\n")
    (cli.folder / "quitter.py").write_text("raise SystemExit(0)\n")

    assert_refused(cli("run", named), 2, word)
    assert not cli.database.exists()


def test_an_option_that_is_given_twice(cli: Cli) -> None:
    """Nobody knows which of the two was meant."""
    assert_refused(cli("runs", "--flow", "a", "--flow", "b"), 2, "--flow: it is given twice")
    twice = ("--store", "sqlite:///a.db", "--store", "sqlite:///b.db")
    assert_refused(cli("runs", *twice), 2, "--store: it is given twice")


def test_an_empty_store(cli: Cli) -> None:
    """Is not the default one."""
    assert_refused(cli("runs", "--store", ""), 2, "'' is not the URL of a store", "sqlite:///")


def test_two_flows_of_one_name(cli: Cli) -> None:
    """A worker that could drive either drives none."""
    (cli.folder / "twin.py").write_text("import outlive\n@outlive.flow\nasync def greet(): ...\n")

    ran = cli("worker", "shop", "twin")

    assert_refused(ran, 2, "shop and twin both have a flow named 'greet'", "name=")


def test_a_worker_without_flows(cli: Cli) -> None:
    """It says what is missing."""
    assert_refused(cli("worker", "json"), 2, "there is no flow in json", "@outlive.flow")


def test_a_step_that_is_not_in_doubt(cli: Cli) -> None:
    """The line says where the doubts are listed."""
    cli("run", "shop:buy", "--id", "a", "--input", '[{"id": "7", "cents": 1}]')
    before = cli.rows()

    for step in ("refund", "0/refund#1", "nothing", ""):
        ran = cli("resolve", "a", step, "--not-happened")
        assert_refused(ran, 2, "in doubt", "`outlive show`")
    assert before == cli.rows()


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
def test_run_ids_are_opaque(cli: Cli, name: str) -> None:
    """Whatever text is a run id, it names that run and nothing else, and steers no terminal."""
    ran = cli("run", "shop:greet", f"--id={name}")
    before = sorted(path.name for path in cli.folder.parent.iterdir())
    listed = cli("runs", "--json").json
    shown = cli("show", "--json", "--", name).json
    text = cli("show", "--", name)

    assert (0, "hello you\n") == (ran.code, ran.out)
    assert ([name], name) == ([run["id"] for run in listed], shown["id"])
    assert "\x1b" not in text.out
    assert 0 == cli("verify", "--", name).code
    assert before == sorted(path.name for path in cli.folder.parent.iterdir())


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("", "a run id is a non-empty text"),
        ("x" * 4096, "at most 512 bytes, this one 4096"),
        ("key/refund:7", "keys live there"),
        ("\udcff", "lone surrogate"),
    ],
)
def test_run_ids_that_no_store_can_keep(cli: Cli, name: str, word: str) -> None:
    """They are refused before anything is written."""
    cli("run", "shop:greet", "--id", "a")
    before = cli.rows()

    assert_refused(cli("run", "shop:greet", f"--id={name}"), 2, word)
    assert before == cli.rows()


def test_nul_in_a_run_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No command line can pass it, a program can."""
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mini.py").write_text("import outlive\n@outlive.flow\nasync def hi(): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    assert 0 == here("run", "mini:hi", "--id", "a", "--store", store).code
    assert_refused(here("run", "mini:hi", "--id", "a\0b", "--store", store), 2, "can't hold NUL")
    assert_refused(here("show", "a\0b", "--store", store), 2, "can't hold NUL")


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (("--debug",), "required: command; see `outlive --help`"),
        (("dance",), "invalid choice: 'dance'"),
        (("run",), "required: MODULE:FLOW; see `outlive run --help`"),
        (("runs", "--limit", "0"), "'0' is not a whole number of at least 1"),
        (("runs", "--status", "tired"), "invalid choice: 'tired'"),
        (("runs", "--tag", "red"), "write --tag NAME=VALUE"),
        (("worker", "shop", "--concurrency", "none"), "'none' is not a whole number of at least 1"),
        (("resolve", "r", "s"), "one of the arguments --happened --not-happened --fail"),
        (("resolve", "r", "s", "--fail", "--not-happened"), "not allowed with argument"),
        (("runs", "--jso"), "unrecognized arguments: --jso"),
    ],
)
def test_words_that_are_no_command(cli: Cli, words: tuple[str, ...], word: str) -> None:
    """One line, exit code 2, and where to look."""
    assert_refused(cli(*words), 2, word)


def test_settings_that_make_no_sense(cli: Cli) -> None:
    """The line names the variable."""
    ran = cli("runs", OUTLIVE_LEASE_SECONDS="soon")

    assert_refused(ran, 2, "OUTLIVE_LEASE_SECONDS='soon'")


def test_debug_shows_the_traceback(cli: Cli) -> None:
    """Only when asked for."""
    ran = cli("run", "nowhere:x", "--debug")

    assert (2, "") == (ran.code, ran.out)
    assert "Traceback" in ran.err
    assert "there is no module 'nowhere'" in ran.err.splitlines()[-1]
