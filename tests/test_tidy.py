"""The rules of style that a machine can hold. Prose rules decay; failing tests don't."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src"
#: Folders that git does not track.
UNTRACKED = re.compile(r"^(\.git|\.venv|build|dist|__pycache__|\.[a-z_]+_cache|\.outlive|\.bench)$")

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60
COLUMNS_MAX = 100
BANNED_FILE_WORDS = {"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"}

#: Words that mean something else here, or nothing: docs/glossary.md has ours.
BANNED_WORDS = {
    "workflow": "flow",
    "pipeline": "flow",
    "invocation": "run",
    "activity": "step",
    "rehydrate": "replay",
    "reducer": "fold",
    "consumer": "worker",
    "backend": "store",
    "datastore": "store",
    "projection": "view",
    "dto": "view",
    "history": "journal",
    "wal": "journal",
}
#: path: identifiers in which such a word has its own, other meaning.
WORDS_ALLOWED: dict[str, set[str]] = {
    # Names of Durable Run, whose calls these are.
    "src/outlive/checkpoints/backends.py": {
        "StorageBackend", "SQLiteStorageBackend", "PostgresStorageBackend",
    },
    "src/outlive/checkpoints/store.py": {"storage_backend", "history"},
    "src/outlive/checkpoints/runner.py": {"history"},
    "src/outlive/sync/checkpoints.py": {"storage_backend", "history"},
    # Names of SW4RM, whose calls these are.
    "src/outlive/inbox/backends.py": {"ActivityBufferLoadError", "PersistenceBackend", "backend"},
    "src/outlive/inbox/buffer.py": {"PersistentActivityBuffer"},
    "src/outlive/inbox/records.py": {"PersistentActivityRecord", "ActivityRecord", "ack_history"},
    "src/outlive/inbox/state.py": {"ack_history"},
}  # fmt: skip

#: The doors of time and chance; everything else gets them as ``Ports``.
DOORS = ("outlive/ports.py", "outlive/testing/")
CLOCK_AND_CHANCE = re.compile(
    r"^(time\.(time|monotonic|perf_counter|process_time|localtime|gmtime)(_ns)?"
    r"|(datetime\.)?(datetime|date)\.(now|utcnow|today)"
    r"|random\.(?!Random$).*|os\.(urandom|getrandom)|uuid\.uuid[14]|secrets\..*)$"
)

#: Hosts that a text may name; anything else is somebody's machine.
HOSTS = {
    "127.0.0.1", "localhost", "docs.python.org", "github.com", "keepachangelog.com", "semver.org",
    "sqlite.org", "www.sqlite.org", "www.w3.org",
}  # fmt: skip
URL = re.compile(r"\bhttps?://([\w.-]+)")
EXAMPLE_HOST = re.compile(r"(^|\.)(example(\.(com|org|net))?|test|invalid)$")
MACHINE = re.compile(r"(?<![\w.])/(home|root|Users|opt|mnt)/|\bindex[-]url\b|\bfind[-]links\b")
TICKET = re.compile(r"\bissues? #?\d+", re.IGNORECASE)


def tracked() -> Iterator[Path]:
    """Every file that belongs to the project."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if not UNTRACKED.match(name)]
        yield from (Path(folder, name) for name in names)


def python_files(*folders: str) -> Iterator[tuple[str, str, ast.Module]]:
    """(path from the root, text, tree) of every Python file below these folders."""
    for path in sorted(tracked()):
        where = path.relative_to(ROOT)
        if path.suffix == ".py" and where.parts[0] in (folders or ("src", "tests", "scripts")):
            yield where.as_posix(), *_parsed(path)


@cache
def _parsed(path: Path) -> tuple[str, ast.Module]:
    text = path.read_text()
    return text, ast.parse(text)


def assert_none(findings: list[str]) -> None:
    assert not findings, "\n" + "\n".join(findings)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_files_are_short() -> None:
    """No file has more lines than one idea needs, no line more columns than a page."""
    too_long = [
        f"{path}: {len(lines)} lines"
        for path, text, _ in python_files()
        if len(lines := text.splitlines()) > FILE_LINES_MAX
    ]
    too_wide = [
        f"{path}:{number}: {len(line)} columns"
        for path, text, _ in python_files()
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > COLUMNS_MAX
    ]

    assert_none(too_long + too_wide)


def test_functions_are_short() -> None:
    """No function is longer than a screen."""
    too_long = [
        f"{path}:{function.lineno}: {function.name} has {lines} lines"
        for path, _, tree in python_files()
        for function in functions(tree)
        if (lines := (function.end_lineno or 0) - function.lineno + 1) > FUNCTION_LINES_MAX
    ]

    assert_none(too_long)


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """What a function does itself, without the functions that it defines."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node
            yield from own_nodes(node)


def test_no_test_passes_by_leaving_early() -> None:
    """A test that can't try what it is there for fails and says what it needs."""
    leaving = [
        f"{path}:{node.lineno}: {function.name} returns"
        for path, _, tree in python_files("src", "tests")
        for function in functions(tree)
        if function.name.startswith("test_")
        for node in own_nodes(function)
        if isinstance(node, ast.Return)
    ]

    assert_none(leaving)


def test_files_have_telling_names() -> None:
    """No file or folder is a drawer for anything."""
    drawers = [
        path
        for path, _, _ in python_files()
        if BANNED_FILE_WORDS.intersection(re.split(r"[/_.]", path))
    ]

    assert_none(drawers)


def test_modules_explain_themselves() -> None:
    """Every module opens with the one idea that it holds."""
    assert_none([path for path, _, tree in python_files() if not ast.get_docstring(tree)])


def identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, name) of everything that a module names."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name
            case ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def words(identifier: str) -> set[str]:
    parts = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", identifier).lower().split("_")
    return {re.sub("ies$", "y", part).removesuffix("s") for part in parts} | set(parts)


def test_one_word_per_concept() -> None:
    """Names use the glossary's words, not their synonyms."""
    wrong = [
        f"{path}:{line}: {name}: say {BANNED_WORDS[word]}, not {word}"
        for path, _, tree in python_files("src")
        for line, name in identifiers(tree)
        for word in sorted(words(name) & BANNED_WORDS.keys())
        if name not in WORDS_ALLOWED.get(path, ())
    ]

    assert_none(wrong)


def reads(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of everything that is looked up or imported, by its original name."""
    alias = {
        name.asname or name.name: f"{node.module}.{name.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and not node.level
        for name in node.names
    } | {
        name.asname: name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for name in node.names
        if name.asname
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            first, dot, rest = ast.unparse(node).partition(".")
            yield node.lineno, alias.get(first, first) + dot + rest


def test_time_and_chance_come_through_ports() -> None:
    """No module but ports.py and testing/ reads a clock or draws a random number."""
    wrong = [
        f"{path}:{line}: {name}"
        for path, _, tree in python_files("src")
        if not path.removeprefix("src/").startswith(DOORS)
        for line, name in reads(tree)
        if CLOCK_AND_CHANCE.match(name)
    ]

    assert_none(sorted(set(wrong)))


def is_empty_container(value: ast.expr | None) -> bool:
    match value:
        case ast.List(elts=[]) | ast.Dict(keys=[]):
            return True
        case ast.Call(func=ast.Name(id=name), args=[]):
            return name in {"list", "dict", "set", "defaultdict", "deque", "OrderedDict", "Counter"}
    return False


def test_no_module_keeps_state() -> None:
    """No module-level container waits to be filled, and nothing is declared global."""
    wrong = [
        f"{path}:{node.lineno}"
        for path, _, tree in python_files("src")
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and is_empty_container(node.value)
    ] + [
        f"{path}:{node.lineno}: global"
        for path, _, tree in python_files("src")
        for node in ast.walk(tree)
        if isinstance(node, ast.Global)
    ]

    assert_none(wrong)


def test_the_project_speaks_of_itself_alone() -> None:
    """No file names a machine's paths, a registry, an unknown host or a ticket."""
    wrong = []
    for path in tracked():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        hosts = {host for host in URL.findall(text) if not EXAMPLE_HOST.search(host)} - HOSTS
        found = [m.group() for rule in (MACHINE, TICKET) for m in rule.finditer(text)]
        found += [str(ROOT)] * (len(ROOT.parts) > 2 and str(ROOT) in text)
        wrong += [f"{path.relative_to(ROOT)}: {what}" for what in sorted(hosts) + found]

    assert_none(wrong)
