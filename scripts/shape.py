"""Print the shape of the package: its size, functions, modules, protocols, names and imports.

``python scripts/shape.py [BASE]``: the working tree beside the commit BASE, unless another is named
the one before modules were moved into packages. ``tests/test_shape.py`` holds the limits.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: The last commit before modules were moved into packages.
BASE = "61b3a27"
FILE_LINES_MAX = 600
#: A module that only one other imports, and that is shorter than this, belongs into that other.
SMALL_MODULE_LINES = 120
GERUND = re.compile(r"[a-z]{3,}ing$")
#: The package that users import by this name.
GERUNDS_ALLOWED = {"testing"}
#: Small modules with one importer that stay on their own, each with its reason.
SMALL_MODULES_ALLOWED = {
    "outlive.web.asgi": "the first part of a package that has only its names in __init__",
    "outlive.cli.entry": "the package's __init__ defers its import: the rest is slow to load",
    "outlive.engine.keys": "who looks for keys of effects looks for this name",
    "outlive.testing.clock": "a documented import path",
    "outlive.testing.suite.suite": "a documented import path; joins the suite's parts",
}
#: Packages that repeat the names of others on purpose: the synchronous face is ``outlive.sync.App``
#: where the asynchronous one is ``outlive.App``, and the stores are built of the same parts.
MIRRORS = {
    "outlive.sync.": "outlive.",
    "outlive.stores.postgres.": "outlive.stores.sqlite.",
}


@dataclass(frozen=True)
class Module:
    """One file of the package."""

    path: str
    text: str

    @property
    def name(self) -> str:
        """As it is imported."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)


def read_tree() -> dict[str, str]:
    """The source files of the working tree, by their paths below src."""
    paths = (path for path in (ROOT / "src").rglob("*") if path.suffix in {".py", ".sql"})
    return {path.relative_to(ROOT / "src").as_posix(): path.read_text() for path in paths}


def read_commit(commit: str) -> dict[str, str]:
    """The source files of a commit, by their paths below src."""
    listed = _git("ls-tree", "-r", "--name-only", commit, "src").split()
    paths = [path for path in listed if path.endswith((".py", ".sql"))]
    return {path.removeprefix("src/"): _git("show", f"{commit}:{path}") for path in paths}


def _git(*arguments: str) -> str:
    return subprocess.check_output(["git", *arguments], cwd=ROOT, text=True)


class Shape:
    """What can be counted of the source files of one tree."""

    def __init__(self, files: dict[str, str]) -> None:
        self._files = files
        modules = (Module(path, text) for path, text in files.items() if path.endswith(".py"))
        self.modules = {module.name: module for module in sorted(modules, key=lambda m: m.path)}

    @property
    def files(self) -> int:
        return len(self._files)

    @property
    def lines(self) -> int:
        """Of Python and SQL."""
        return sum(len(text.splitlines()) for text in self._files.values())

    @cached_property
    def function_lines(self) -> list[int]:
        """The length of each function, the shortest first."""
        return sorted(
            (node.end_lineno or 0) - node.lineno + 1
            for module in self.modules.values()
            for node in ast.walk(module.tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        )

    def function_lines_at(self, share: float) -> int:
        """The length that this share of the functions does not exceed."""
        lengths = self.function_lines
        return lengths[min(int(len(lengths) * share), len(lengths) - 1)]

    def long_files(self) -> list[str]:
        return [m.path for m in self.modules.values() if m.lines > FILE_LINES_MAX]

    def gerunds(self) -> list[str]:
        """Modules and packages named by what somebody does instead of by what they are."""
        words = ((name, name.rpartition(".")[2]) for name in self.modules)
        return [name for name, word in words if GERUND.search(word) and word not in GERUNDS_ALLOWED]

    def _classes(self) -> Iterator[tuple[str, ast.ClassDef]]:
        for name, module in self.modules.items():
            yield from ((name, node) for node in module.tree.body if isinstance(node, ast.ClassDef))

    def protocols(self) -> list[str]:
        return [
            f"{module}.{node.name}"
            for module, node in self._classes()
            if any(re.match(r"(typing\.)?Protocol\b", ast.unparse(base)) for base in node.bases)
        ]

    def repeated_classes(self) -> dict[str, list[str]]:
        """Public class names that more than one module defines, with those modules."""
        found = defaultdict(list)
        for module, node in self._classes():
            if not node.name.startswith("_"):
                found[node.name].append(module)
        return {
            name: where
            for name, where in sorted(found.items())
            if len(where) > 1 and not _is_mirrored(where)
        }

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """What each module imports of the others, wherever and for whatever in the file."""
        names = set(self.modules)
        return {name: set(_imports(module.tree, names)) for name, module in self.modules.items()}

    def cycle(self) -> list[str]:
        """Modules that import one another in a circle; deferred and type-only imports count."""
        try:
            TopologicalSorter(self.imports).prepare()
        except CycleError as error:
            return list(error.args[1])
        return []

    def small_modules(self) -> list[str]:
        """Those with one importer, short, and without a reason to stay on their own."""
        importers = Counter(name for found in self.imports.values() for name in found)
        return [
            name
            for name, module in self.modules.items()
            if importers[name] == 1
            and module.lines < SMALL_MODULE_LINES
            and not module.path.endswith("__init__.py")
            and name not in SMALL_MODULES_ALLOWED
        ]


def _is_mirrored(modules: list[str]) -> bool:
    """Two modules define the same name, and one of them is the mirror of the other's package."""
    return len(modules) == 2 and any(
        mirror.startswith(package) and other.startswith(original)
        for package, original in MIRRORS.items()
        for mirror, other in (modules, modules[::-1])
    )


def _imports(tree: ast.Module, modules: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names if name.name in modules)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                for name in names:
                    inner = f"{module}.{name.name}"
                    if found := {inner, module} & modules:
                        yield max(found, key=len)
            case ast.Call(func=function, args=[ast.Constant(value=str(module)), *_]):
                if ast.unparse(function).endswith("import_module") and module in modules:
                    yield module


def rows(shape: Shape) -> Iterator[tuple[str, str]]:
    """Each figure, with its name."""
    p50, p90 = (shape.function_lines_at(share) for share in (0.5, 0.9))
    yield "lines", f"{shape.lines:,}"
    yield "files", str(shape.files)
    yield "function lines p50 / p90 / max", f"{p50} / {p90} / {shape.function_lines[-1]}"
    yield f"files > {FILE_LINES_MAX} lines", str(len(shape.long_files()))
    small = f"modules < {SMALL_MODULE_LINES} lines with one importer"
    yield small, str(len(shape.small_modules()))
    yield "modules named by a gerund", str(len(shape.gerunds()))
    yield "protocols", str(len(shape.protocols()))
    yield "public class names defined twice", str(len(shape.repeated_classes()))
    yield "modules in an import cycle", str(len(set(shape.cycle())))


def details(shape: Shape) -> Iterator[tuple[str, Iterable[str]]]:
    """What the counts count."""
    yield "long files", shape.long_files()
    yield "small modules with one importer", shape.small_modules()
    yield "gerunds", shape.gerunds()
    yield "protocols", shape.protocols()
    repeated = shape.repeated_classes().items()
    yield "class names defined twice", [f"{name}: {', '.join(where)}" for name, where in repeated]
    yield "import cycle", shape.cycle()
    allowed = SMALL_MODULES_ALLOWED.items()
    yield "small modules that stay", [f"{name}: {reason}" for name, reason in allowed]


def main() -> int:
    """Print the figures of both, and what they count in the working tree."""
    base = sys.argv[1] if len(sys.argv) > 1 else BASE
    now, before = Shape(read_tree()), Shape(read_commit(base))
    for title, found in details(now):
        for line in found:
            print(f"{title}: {line}")
    print(f"{'':44}{base:>14}{'now':>14}")
    for (name, old), (_, new) in zip(rows(before), rows(now), strict=True):
        print(f"{name:44}{old:>14}{new:>14}")
    print(f"lines {now.lines / before.lines:.0%}, files {now.files / before.files:.0%} of {base}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
