"""Writes the tables of docs/ that follow from the code, each between two marks.

    <!-- generated: errors RunError -->
    ...
    <!-- end -->

Around them people write prose, which this leaves alone. A name's meaning is its docstring's, so
that ``help(outlive.x)`` and the page say the same. Without an argument the pages are written;
``--check`` only says which of them are not up to date. A test does that, too.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import runpy
import sys
import typing
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import outlive
from outlive import checkpoints, errors, jobs, loop, sync, web
from outlive.cli.grammar import Parser
from outlive.cli.parser import build_parser
from outlive.jobs import escrow, masumi
from outlive.model.kinds import KINDS
from outlive.model.retry import ONCE
from outlive.settings import Settings

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "outlive"
MARKED = re.compile(
    r"(?P<begin><!-- generated: (?P<what>[^>]+?) -->\n).*?(?P<end><!-- end -->)", re.S
)
#: A field of a class that says what it means in the comment before it.
FIELD = re.compile(r"(?P<said>(?:^    #: .*\n)*)^    (?P<name>[a-z]\w*): ", re.M)
SETTING = re.compile(r"^    #: (?P<variable>OUTLIVE_\w+): (?P<said>.*(?:\n    #: .*)*)\n", re.M)
DEFS = ast.FunctionDef | ast.AsyncFunctionDef
#: Options that every command has.
EVERYWHERE = {"--help", "--store", "--debug", "--json"}
#: By what stands before a class: where it is.
PACKAGES: dict[str, ModuleType] = {
    "": outlive, "checkpoints": checkpoints, "jobs": jobs, "jobs.masumi": masumi, "loop": loop,
    "sync": sync,
}  # fmt: skip


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [list(titles), ["---"] * len(titles), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


# what the code says


def meaning(thing: Any) -> str:
    """A docstring as one line: what it does, then what it raises."""
    said, _, raised = (inspect.getdoc(thing) or "").partition("\nRaises:\n")
    text = " ".join(said.split())
    if raised:
        causes = re.findall(r"^ *(\w+): (.*(?:\n {8,}.*)*)", raised, re.M)
        told = "; ".join(f"``{name}``: {' '.join(why.split()).rstrip('.')}" for name, why in causes)
        text += f" Raises {told}."
    return text.replace("``", "`").replace("|", "\\|")


def call_of(name: str, thing: Any) -> str:
    """How it is called: its parameters and their defaults."""
    overloads = typing.get_overloads(thing) if inspect.isfunction(thing) else []
    signature = inspect.signature(overloads[-1] if overloads else thing)
    parts, is_star_due = [], True
    for each in signature.parameters.values():
        if each.name == "self":
            continue
        if each.kind is each.VAR_POSITIONAL:
            is_star_due = False
        elif each.kind is each.KEYWORD_ONLY and is_star_due:
            parts.append("*")
            is_star_due = False
        prefix = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        given = "" if each.default is each.empty else f"={shown(each.default)}"
        parts.append(f"{prefix}{each.name}{given}")
    return f"{name}({', '.join(parts)})"


def shown(value: Any) -> str:
    """A default as somebody would type it."""
    if value is ONCE:
        return "Retry(attempts=1)"
    if value is Any:
        return "Any"
    if isinstance(value, str):
        return json.dumps(value)
    return value.__name__ if isinstance(value, type) else f"{value!r}"


def members(cls: type) -> list[tuple[str, str]]:
    """(how it is written, what it means) of everything public of a class, as it was defined."""
    found: dict[str, tuple[str, str]] = {}
    for each in reversed(cls.__mro__[:-1]):
        if not each.__module__.startswith("outlive."):
            continue
        found |= fields(each)
        for name, thing in vars(each).items():
            if name.startswith("_") or not (inspect.getdoc(thing) or "").strip():
                continue
            if inspect.isfunction(thing):
                found[name] = call_of(name, thing), meaning(thing)
            elif isinstance(thing, property):
                found[name] = name, meaning(thing)
    return list(found.values())


def fields(cls: type) -> dict[str, tuple[str, str]]:
    """The fields of a class that are explained where they stand."""
    return {
        found["name"]: (found["name"], " ".join(found["said"].replace("#:", "").split()))
        for found in FIELD.finditer(inspect.getsource(cls))
        if found["said"] or found["name"] in getattr(cls, "__struct_fields__", ())
    }


# the tables


def names(module: ModuleType, wanted: Sequence[str]) -> str:
    """Public names of a module, in this order."""
    rows = []
    for name in wanted:
        thing = getattr(module, name)
        said = call_of(name, thing) if callable(thing) and not inspect.isclass(thing) else name
        rows.append((f"`{said}`", meaning(thing)))
    return table(("name", "means"), rows)


def class_of(name: str) -> str:
    """What a public class has."""
    package, _, own = name.rpartition(".")
    cls: type = getattr(PACKAGES[package], own)
    rows = [(f"`{written}`", said) for written, said in members(cls)]
    has = "\n" + table((f"of `{name}`", "means"), rows) if rows else ""
    return f"**`{name}`**: {meaning(cls)}\n{has}"


def own_names_of_sync(_: str) -> str:
    """Names of ``outlive.sync`` that are not simply those of ``outlive``."""
    own = [n for n in sync.__all__ if getattr(sync, n) is not getattr(outlive, n, None)]
    return names(sync, own)


def error_group(name: str) -> str:
    """The errors of one group."""
    group = getattr(errors, name)
    known = [c for c in vars(errors).values() if inspect.isclass(c)]
    classes = [c for c in known if issubclass(c, group) and c is not group]
    rows = [(f"`{each.__name__}`", meaning(each)) for each in classes]
    return table(("error", "what happened, and what to do"), rows)


def settings(_: str) -> str:
    """Every variable, what it means and what holds without it."""
    source, standard = inspect.getsource(Settings), Settings()
    rows = []
    for found in SETTING.finditer(source):
        said = " ".join(found["said"].replace("#:", "").split())
        value = getattr(standard, found["variable"].removeprefix("OUTLIVE_").lower())
        text = f"{value:g}" if isinstance(value, float) else f"`{value}`" if value else "none"
        rows.append((f"`{found['variable']}`", said, text))
    return table(("variable", "means", "default"), rows)


def tag_of(kind: Any) -> int:
    """The number that stands for a kind of event in a record."""
    return int(kind.__struct_config__.tag)


def kinds(_: str) -> str:
    """Every kind of event, by its tag."""
    rows = []
    for kind in sorted(KINDS, key=tag_of):
        said = meaning(kind)
        has = ", ".join(f"`{name}`" for name in kind.__struct_fields__)
        wakes = "yes" if "*Delivered.*" in said else ""
        said = said.replace("*Delivered.*", "").strip()
        rows.append((str(tag_of(kind)), f"`{kind.__name__}`", said, wakes, has))
    return table(("tag", "event", "means", "wakes the flow", "has"), rows)


def command(name: str) -> str:
    """A command: how it is typed, what it does, its arguments and options."""
    parser = build_parser().commands()[name]
    rows = [
        (f"`{' '.join(each.option_strings) or each.metavar or each.dest}{value_of(each)}`",
         (each.help or "").replace("|", "\\|"))
        for each in parser._actions  # noqa: SLF001 - it has no other name
        if not EVERYWHERE.intersection(each.option_strings)
    ]  # fmt: skip
    said = " ".join((parser.description or "").split())
    head = f"## `{usage(name, parser)}`\n\n{said}\n"
    return head + ("\n" + table(("argument", "means"), rows) if rows else "")


def value_of(action: Any) -> str:
    """What an option takes."""
    return f" {action.metavar}" if action.option_strings and action.metavar else ""


def usage(name: str, parser: Parser) -> str:
    """How the command is typed: arguments, then options."""
    groups = parser._mutually_exclusive_groups  # noqa: SLF001 - it has no other name
    chosen = [each for group in groups for each in group._group_actions]  # noqa: SLF001
    words = ["outlive", name]
    rest = [each for each in parser._actions if each not in chosen]  # noqa: SLF001
    for each in sorted(rest, key=lambda action: bool(action.option_strings)):
        if not each.option_strings:
            word = each.metavar or "|".join(map(str, each.choices or (each.dest,)))
            words.append({"*": f"[{word}...]", "+": f"{word}...", "?": f"[{word}]"}.get(
                str(each.nargs), word))  # fmt: skip
        elif "--json" in each.option_strings or not EVERYWHERE.intersection(each.option_strings):
            words.append(f"[{each.option_strings[-1]}{value_of(each)}]")
    if chosen:
        among = " | ".join(f"{each.option_strings[-1]}{value_of(each)}" for each in chosen)
        words.insert(len(words) - words.count("[--json]"), f"({among})")
    return " ".join(words)


def tree(_: str) -> str:
    """Every package, its one idea, and its modules."""
    rows = []
    for package in sorted(path.parent for path in SOURCE.rglob("__init__.py")):
        said = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
        first = " ".join(said.partition("\n\n")[0].split()).partition(". ")[0].rstrip(".")
        names = sorted(path.stem for path in package.glob("*.py") if path.stem != "__init__")
        folder = package.relative_to(SOURCE.parent).as_posix().removeprefix("outlive/")
        cells = (f"`{folder}/`", first.replace("``", "`").replace("|", "\\|"), " ".join(names))
        rows.append(cells)
    return table(("package", "its idea", "modules"), rows)


# promises


def promises(_: str) -> str:
    """Every promise, its tests, and how much of each is tried."""
    trials = runpy.run_path(str(ROOT / "tests" / "promises.py"))["PROMISES"]
    rows = []
    for promise, tests in trials.items():
        for number, (test, kills, *texts) in enumerate(tests):
            said, counts = told_by(test)
            daily, full = texts if any(texts) else map("; ".join, zip(*counts, strict=True))
            name = f"`{test.removeprefix('tests/')}`"
            rows.append(
                ("" if number else promise, name, said, "yes" if kills else "", daily, full)
            )
    return table(("promise", "test", "expects", "kills", "`make test`", "`make test-full`"), rows)


def defects(_: str) -> str:
    """What once broke, the test that holds it, and how that was seen to fail."""
    rows = runpy.run_path(str(ROOT / "tests" / "promises.py"))["DEFECTS"]
    told = [(defect, f"`{test.removeprefix('tests/')}`", seen) for defect, test, seen in rows]
    return table(("defect", "test", "seen failing"), told)


def standings(_: str) -> str:
    """What a job does at each standing of its payment."""
    rows = [(f"`{name}`", *rules) for name, rules in escrow.RULES.items()]
    return table(("standing", "before there is a result", "once the result is saved"), rows)


def decisions(_: str) -> str:
    """The standing of each on-chain state with each next action."""
    titles = ("on-chain state", *(f"`{action}`" for action in masumi.ACTIONS))
    rows = [
        (
            f"`{state}`" if state else "null, 404",
            *(masumi.standing_of(state, action) for action in masumi.ACTIONS),
        )
        for state in masumi.STATES
    ]
    return table(titles, rows)


def job_items(_: str) -> str:
    """What must hold of jobs, by number, and the tests that show it."""
    texts = runpy.run_path(str(ROOT / "tests" / "jobs" / "items.py"))["ITEMS"]
    tests: dict[int, list[str]] = {number: [] for number in texts}
    for path in sorted((ROOT / "tests" / "jobs").glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            for number in marked(node) if isinstance(node, DEFS) else ():
                tests[number].append(f"`{path.stem}::{node.name}`")
    rows = [(str(number), texts[number], "<br>".join(found)) for number, found in tests.items()]
    return table(("item", "what must hold", "shown by"), rows)


def marked(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterable[int]:
    """The numbers of the items that a test shows."""
    for each in node.decorator_list:
        if isinstance(each, ast.Call) and ast.unparse(each.func).endswith("mark.item"):
            yield from map(ast.literal_eval, each.args)


def told_by(test: str) -> tuple[str, list[tuple[str, str]]]:
    """What a test expects, and (by default, in full) of all that it does more often in full.

    What its fixtures of the same module do counts, too.
    """
    path, _, name = test.partition("::")
    tree = ast.parse((ROOT / path).read_text())
    found = {node.name: node for node in tree.body if isinstance(node, DEFS)}
    function = found[name]
    asked = [found[each.arg] for each in function.args.args if each.arg in found]
    numbers = {
        target.id: value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target, value in assigned(node)
    }
    chosen = [
        (counted(node.orelse, numbers), counted(node.body, numbers))
        for each in (*asked, function)
        for node in unasserted(each)
        if isinstance(node, ast.IfExp)
        and isinstance(node.test, ast.Name)
        and node.test.id == "full"
    ]
    said = " ".join((ast.get_docstring(function) or "").split())
    return said.replace("``", "`").replace("|", "\\|"), chosen or [("the same", "the same")]


def unasserted(node: ast.AST) -> Iterable[ast.AST]:
    """All that a function does, but for its assertions."""
    for each in ast.iter_child_nodes(node):
        if not isinstance(each, ast.Assert):
            yield each
            yield from unasserted(each)


def assigned(node: ast.Assign) -> Iterable[tuple[ast.Name, ast.expr]]:
    """(name, value) of what a statement assigns, also of several at once."""
    (target,) = node.targets
    pairs = [(target, node.value)]
    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
        pairs = list(zip(target.elts, node.value.elts, strict=True))
    return [(name, value) for name, value in pairs if isinstance(name, ast.Name)]


def counted(node: ast.expr, numbers: dict[str, ast.expr]) -> str:
    """How often, in words: a number, a sample of so many, or all there are."""
    if isinstance(node, ast.Constant):
        return f"{node.value:,}" if isinstance(node.value, int | float) else "all"
    if isinstance(node, ast.Name) and node.id in numbers:
        return counted(numbers[node.id], numbers)
    if isinstance(node, ast.Tuple):
        return " × ".join(counted(each, numbers) for each in node.elts)
    if isinstance(node, ast.Call):
        return called(node, numbers)
    return "all" if isinstance(node, ast.Name) else f"`{ast.unparse(node)}`"


def called(node: ast.Call, numbers: dict[str, ast.expr]) -> str:
    """The same of what a call chooses."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
    if name == "len":
        return "all"
    if name == "min":
        return counted(node.args[0], numbers)
    if name == "of_each_kind":
        return f"{counted(node.args[1], numbers)} of each kind"
    if name == "sample":
        return f"a sample of {counted(node.args[1], numbers)}"
    return f"`{ast.unparse(node)}`"


TABLES: dict[str, Callable[[str], str]] = {
    "names": lambda wanted: names(outlive, wanted.split()),
    "loop": lambda wanted: names(loop, wanted.split()),
    "checkpoints": lambda wanted: names(checkpoints, wanted.split()),
    "class": class_of,
    "sync": own_names_of_sync,
    "errors": error_group,
    "settings": settings,
    "events": kinds,
    "command": command,
    "tree": tree,
    "promises": promises,
    "defects": defects,
    "standings": standings,
    "decisions": decisions,
    "job-items": job_items,
    "jobs": lambda wanted: names(jobs, wanted.split()),
    "masumi": lambda wanted: names(masumi, wanted.split()),
    "web": lambda wanted: names(web, wanted.split()),
}


def written(page: str) -> str:
    """The page with its tables as the code has them now."""

    def fill(found: re.Match[str]) -> str:
        kind, _, rest = found["what"].partition(" ")
        return f"{found['begin']}\n{TABLES[kind](rest)}\n{found['end']}"

    return MARKED.sub(fill, page)


def stale() -> list[Path]:
    """Pages that are not as the code would have them."""
    pages = {path: path.read_text() for path in sorted(ROOT.glob("docs/**/*.md"))}
    return [path for path, text in pages.items() if written(text) != text]


def main() -> int:
    """Write, or only look."""
    found = stale()
    for path in found:
        print(path.relative_to(ROOT))
        if "--check" not in sys.argv[1:]:
            path.write_text(written(path.read_text()))
    return 1 if found and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    raise SystemExit(main())
