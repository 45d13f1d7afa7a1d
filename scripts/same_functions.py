"""Prove that a change only moved code: the functions of two revisions are the same multiset.

``python scripts/same_functions.py OLD [NEW]``: NEW is the working tree unless named. Functions are
compared by their syntax trees, without the module that they stand in. The exit code is 1 if any
function of ``src`` was added, removed or changed; each is listed.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path


def sources(revision: str | None) -> Iterator[str]:
    """The text of every module of the package at a revision, or in the working tree."""
    if revision is None:
        yield from (path.read_text() for path in Path("src").rglob("*.py"))
        return
    listed = ["git", "ls-tree", "-r", "--name-only", revision, "src"]
    for path in subprocess.check_output(listed, text=True).split():
        if path.endswith(".py"):
            yield subprocess.check_output(["git", "show", f"{revision}:{path}"], text=True)


def functions(revision: str | None) -> Counter[tuple[str, str]]:
    """Every function, by its name and its syntax tree."""
    found: Counter[tuple[str, str]] = Counter()
    for text in sources(revision):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = [each for each in node.body if not isinstance(each, ast.ImportFrom)]
                found[node.name, "".join(map(ast.dump, (node.args, *body)))] += 1
    return found


def main() -> int:
    """Compare, list the differences, say how many functions were compared."""
    old = functions(sys.argv[1])
    new = functions(sys.argv[2] if len(sys.argv) > 2 else None)
    for sign, rest in (("-", old - new), ("+", new - old)):
        for (name, _), count in sorted(rest.items()):
            print(sign, name, f"({count})" if count > 1 else "")
    print(f"{old.total()} functions before, {new.total()} after")
    return int(old != new)


if __name__ == "__main__":
    sys.exit(main())
