"""``outlive doctor``: checks the store, the settings, and that every run has a driver."""

from __future__ import annotations

import argparse
import asyncio
import re
import shlex
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, fields

from outlive.app.app import App
from outlive.app.open import open_app
from outlive.app.seal import key_ids_of
from outlive.cli.output import now_ms, print_json, print_line
from outlive.engine.notices import MISMATCH, wait_of
from outlive.errors import RunError, StoreError
from outlive.journal.reader import read_events
from outlive.model.run import ENDED, STATUSES, Run, fold
from outlive.model.schedules import SCHEDULE_PREFIX
from outlive.settings import Settings
from outlive.stores.types import LAST_CHAPTER, PAGE_MAX, Count, Found, Health
from outlive.views.runs import shown

#: The time that a due run waits for a worker before it is reported as abandoned.
PATIENCE_SECONDS = 1.5
NAMED_MAX = 5
#: Pages of open runs that are looked at.
PAGES_MAX = 20
_OPEN = tuple(status for status in STATUSES if status not in ENDED)
#: The age from which a question counts as overlooked.
OLD_QUESTION_MS = 24 * 60 * 60 * 1000
#: How a run of a schedule ended that somebody should look at, and how it ended as it should.
_ENDED_BADLY, _ENDED_WELL = ("failed", "quarantined"), ("completed", "cancelled")
QUARANTINED = "outlive show {}, then outlive retry {}"
#: Secrets in a store's URL: passwords, also inside its parameters.
_SECRET = re.compile(r"(://[^:/?@]*:)[^?]*(?=@)|([?&](?:password|sslpassword|listen)=)[^&]*")
_URLS = ("store", "blobs")


@dataclass(slots=True)
class DoctorReport:
    """The findings."""

    health: Health
    settings: dict[str, str]
    statuses: dict[str, Count] = field(default_factory=dict)
    #: By flow and version: runs that are due and that nobody drives.
    forsaken: dict[str, list[str]] = field(default_factory=dict)
    #: Runs that wait for a human, and what to do about each.
    human: list[dict[str, str]] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """The exit code. 3: the store has a problem; 1: something needs a human or a worker."""
        if self.health.problems:
            return StoreError.exit_code
        return RunError.exit_code if self.human or self.forsaken else 0


def doctor(asked: argparse.Namespace) -> int:
    """Check everything; 3 if the store has a problem, 1 if something needs a human."""
    report = asyncio.run(_look(asked))
    problems = list(report.health.problems)
    if asked.json:
        print_json(
            {
                "store": report.health.store,
                "facts": dict(report.health.facts),
                "problems": problems,
                "settings": report.settings,
                "runs": {name: count.value for name, count in report.statuses.items()},
                "more_than_counted": [x for x, y in report.statuses.items() if y.is_capped],
                "forsaken": report.forsaken,
                "human": report.human,
            }
        )
    else:
        _print(report)
    return report.exit_code


async def _look(asked: argparse.Namespace) -> DoctorReport:
    settings = Settings.from_environment()
    async with open_app(asked.store, drive=False, must_exist=True, only_looks=True) as app:
        report = DoctorReport(await app.health(), _named(settings, key_ids_of(app.store)))
        for status in STATUSES:
            counted = await app.count(status=status)
            if counted.value:
                report.statuses[status] = counted
        due: list[Found] = []
        async for found in _pages(app):
            alone = await app.unattended(found)
            due += [run for run in found if run.head.run_id in alone]
            report.human += await _for_humans(app, found)
        for run in await forsaken(app, due):
            name = f"{run.header.flow} (version {run.header.version})"
            report.forsaken.setdefault(name, []).append(run.head.run_id)
        report.human += await _failing_schedules(app)
        return report


async def _for_humans(app: App, found: list[Found]) -> list[dict[str, str]]:
    """List what only a human can resolve: doubts, old questions, quarantines, mismatched code."""
    old_at = now_ms(app.store) - OLD_QUESTION_MS
    told = []
    for run in found:
        header, run_id = run.header, run.head.run_id
        if header.status == "quarantined":
            told.append(_needs(run, "quarantine", shown(header.reason), QUARANTINED))
        elif header.reason and header.ended_at is None:
            told.append(_needs(run, "stopped", shown(header.reason), "outlive show {}"))
        elif header.status == "in_doubt" or _may_ask(run, old_at):
            state = fold(read_events(await app.read(run_id, LAST_CHAPTER)))
            wait = wait_of(run_id, state)
            if wait is not None and (wait.kind == "doubt" or _is_old(state, old_at)):
                told.append(_needs(run, wait.kind, f"{wait.step}: {wait.why}", wait.command))
    return told


async def _failing_schedules(app: App) -> list[dict[str, str]]:
    """Schedules whose last run failed or was put aside: the next will probably do so, too."""
    told = []
    for schedule in await app.schedules():
        ended = [run for run in schedule.recent if run.status in _ENDED_BADLY + _ENDED_WELL]
        if not ended or ended[-1].status in _ENDED_WELL:
            continue
        well = [run.status in _ENDED_WELL for run in reversed(ended)]
        bad = well.index(True) if True in well else len(well)
        why = f"its last {bad} runs failed" if bad > 1 else "its last run failed"
        last, name = ended[-1].id, f"{SCHEDULE_PREFIX}{schedule.name}"
        about = {"run": name, "flow": schedule.flow, "kind": "schedule", "why": f"{why}: {last}"}
        told.append(about | {"command": f"outlive show {shlex.quote(last)}"})
    return told


def _needs(run: Found, kind: str, why: str, command: str) -> dict[str, str]:
    run_id = run.head.run_id
    is_misfit = kind == "stopped" and why.startswith(MISMATCH)
    kind, quoted = "mismatch" if is_misfit else kind, shlex.quote(run_id)
    about = {"run": run_id, "flow": run.header.flow, "kind": kind, "why": why}
    return about | {"command": command.replace("{}", quoted)}


def _may_ask(run: Found, old_at: int) -> bool:
    return run.header.status == "waiting" and run.header.started_at < old_at


def _is_old(run: Run, old_at: int) -> bool:
    return any(run.start.started_at + each.at < old_at for each in run.questions.values())


def _named(settings: Settings, key_ids: list[str]) -> dict[str, str]:
    """The value of each variable, set or default; passwords and keys are masked."""
    named = {each.name: str(getattr(settings, each.name)) for each in fields(settings)}
    named |= {name: _without_password(named[name]) for name in _URLS}
    named["retention"] = ",".join(map(_without_password, named["retention"].split(",")))
    named["key"] = ",".join(f"(key id {each})" for each in key_ids)
    return {f"OUTLIVE_{name.upper()}": value for name, value in named.items()}


def _without_password(url: str) -> str:
    return _SECRET.sub(r"\1\2***", url)


async def _pages(app: App) -> AsyncIterator[list[Found]]:
    """Runs that are under way or put aside, the oldest first, a page at a time; of very many, some.

    Those that ended need nothing.
    """
    after = None
    for _ in range(PAGES_MAX):
        page = await app.find(status=_OPEN, limit=PAGE_MAX, after=after)
        yield list(page.items)
        after = page.next
        if after is None:
            return


async def forsaken(app: App, found: list[Found]) -> list[Found]:
    """Runs that were due and not held, and still are after a while."""
    first = await app.unattended(found)
    if not first:
        return []
    await asyncio.sleep(PATIENCE_SECONDS)
    still = await app.unattended([run for run in found if run.head.run_id in first])
    return [run for run in found if run.head.run_id in still]


def _print(report: DoctorReport) -> None:
    print_line(f"store     {report.health.store}")
    for name, fact in report.health.facts.items():
        print_line(f"  {name}: {fact}")
    for problem in report.health.problems:
        print_line(f"  PROBLEM: {problem}")
    print_line("settings")
    for name, value in report.settings.items():
        print_line(f"  {name}={value}")
    counted = ", ".join(f"{count} {status}" for status, count in sorted(report.statuses.items()))
    print_line(f"runs      {counted or 'none'}")
    for name, run_ids in report.forsaken.items():
        some = ", ".join(run_ids[:NAMED_MAX]) + (", …" if len(run_ids) > NAMED_MAX else "")
        print_line(f"  nobody drives flow {name}: {len(run_ids)} due ({some})")
        print_line("    start a worker that has it: outlive worker MODULE")
    for each in report.human:
        first, *rest = each["why"].splitlines() or [""]
        print_line(f"  {each['kind']}: run {each['run']} (flow {each['flow']}): {first}")
        for line in rest:
            print_line(f"    {line}")
        choice = " --happened JSON    (or --not-happened, or --fail)"
        print_line(f"    {each['command']}{choice if each['kind'] == 'doubt' else ''}")
    sound = "has problems" if report.health.problems else "is sound"
    print_line(
        f"the store {sound}"
        + ("; some runs need a worker" if report.forsaken else "")
        + ("; some need you" if report.human else "")
    )
