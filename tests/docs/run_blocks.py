"""Runs the blocks of one page, as a reader would; called by test_snippets.py in a process of
its own, with the reader's folder as current folder."""

from __future__ import annotations

import json
import linecache
import os
import re
import subprocess
import sys
import time
import types
from pathlib import Path

RUN = re.compile(r"^(\w+=\S+ )*(outlive|python)\b")
EXPORT = re.compile(r"^export (\w+)=(.*)$")
#: What a reader does once, and other tests do: installing, the targets of make.
NOT_HERE = re.compile(r"^(pip install|make|git clone|cd) ")
#: What differs from run to run, though it is shown as it was once: instants, times since a start,
#: times taken, ids of workers and keys.
VARYING = re.compile(
    r"\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)|\+\d+\.\d+|\b\d+(\.\d+)? (ms|s|m|h)\b|\b\d+[smh]\b"
    r"|\b[0-9a-f]{16,32}\b"
)
BACKGROUND: list[subprocess.Popen[bytes]] = []


def run_python(namespace: dict[str, object], page: str, line: int, body: str) -> None:
    if saved := re.match(r"# (\w+\.py)\n", body):
        Path(saved[1]).write_text(body + "\n")
    # Tracebacks, and whoever asks for a function's source, shall find the page's text.
    source = "\n" * (line - 1) + body
    place = f"{page}, block at line {line}"
    linecache.cache[place] = (len(source), None, source.splitlines(keepends=True), place)
    exec(compile(source, place, "exec", dont_inherit=True), namespace)


def commands(body: str) -> list[tuple[str, str]]:
    """(command, output that is shown below it)"""
    parts = re.split(r"^\$ ", body, flags=re.M)
    if parts[0].strip():
        raise SystemExit(f"a console block must begin with a command: {parts[0]!r}")
    return [(c.strip(), shown.strip()) for c, _, shown in (p.partition("\n") for p in parts[1:])]


def export(name: str, value: str) -> None:
    """Set a variable as a shell would, for the commands that follow."""
    shell = ["sh", "-c", f"printf %s {value}"]
    os.environ[name] = subprocess.run(shell, stdout=subprocess.PIPE, text=True, check=True).stdout


def matches(shown: str, said: str) -> bool:
    """Whether a command said what is shown.

    Where ``...`` stands in what is shown, anything may stand in that line; a line of its own stands
    for any number of lines. Then also columns may have other widths, and times and ids be others.
    """
    if "..." not in shown:
        return shown == said.strip()
    lines = [_pattern(" ".join(VARYING.sub("~", line).split())) for line in shown.splitlines()]
    spoken = [" ".join(VARYING.sub("~", line).split()) for line in said.strip().splitlines()]
    return re.fullmatch("".join(lines), "".join(f"{line}\n" for line in spoken)) is not None


def _pattern(line: str) -> str:
    if line == "...":
        return r"(?:.*\n)*"
    return ".*".join(re.escape(part) for part in line.split("...")) + r"\n"


def run_command(command: str, shown: str, *, may_fail: bool) -> int:
    if NOT_HERE.match(f"{command} "):
        return 0
    if set_here := EXPORT.match(command):
        export(set_here[1], set_here[2])
        return 0
    if not RUN.match(command):
        raise SystemExit(f"this command is not run by the tests: {command}")
    if command.endswith("&"):
        BACKGROUND.append(subprocess.Popen(["sh", "-c", "exec " + command.rstrip("& ")]))
        return 0
    ran = subprocess.run(["sh", "-c", command + " 2>&1"], stdout=subprocess.PIPE, text=True)
    if ran.returncode and not may_fail:
        raise SystemExit(f"$ {command}\n{ran.stdout}\nended with {ran.returncode}")
    if shown and not matches(shown, ran.stdout):
        raise SystemExit(f"$ {command}\nprints\n{ran.stdout}\nand not\n{shown}")
    return ran.returncode


def run_console(body: str) -> None:
    lines = commands(body)
    code = 0
    for number, (command, shown) in enumerate(lines):
        if command == "echo $?":
            if shown != str(code):
                raise SystemExit(f"exit code {code}, not {shown}")
            continue
        after = lines[number + 1 :][:1]
        may_fail = bool(after) and after[0][0] == "echo $?"
        code = run_command(command, shown, may_fail=may_fail)


def main() -> None:
    """Run all blocks, then end what was started in the background."""
    script, page = json.loads(Path(sys.argv[1]).read_text()), sys.argv[2]
    reader, runner = types.ModuleType("__main__"), sys.modules["__main__"]
    sys.modules["__main__"] = reader  # so that type hints of the page are found where they belong
    began = time.monotonic()
    try:
        for line, kind, body in script:
            print(f"{page}:{line} after {time.monotonic() - began:.1f} s", flush=True)
            if kind == "python":
                run_python(vars(reader), page, line, body)
            else:
                run_console(body)
    finally:
        sys.modules["__main__"] = runner
        for process in BACKGROUND:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
