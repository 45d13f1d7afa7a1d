"""``outlive doctor``: is the store sound and safe, what is set, and does anybody drive the runs?"""

from __future__ import annotations

import argparse
import asyncio
import re
from dataclasses import dataclass, field, fields

from outlive.app import App
from outlive.cli.output import print_json, print_line
from outlive.errors import StoreError
from outlive.opening import open_app
from outlive.sealing import key_ids_of
from outlive.settings import Settings
from outlive.store import PAGE_MAX, Found, Health

#: A run that is due waits this long for a worker that looks for it before it is called forsaken.
PATIENCE_SECONDS = 1.5
NAMED_MAX = 5
#: What of a store's URL is nobody's business: the password, also that of another place in it.
_SECRET = re.compile(r"(://[^:/?@]*:)[^?]*(?=@)|([?&](?:password|sslpassword|listen)=)[^&]*")
_URLS = ("store", "blobs")


@dataclass(slots=True)
class Report:
    """What was found."""

    health: Health
    settings: dict[str, str]
    runs: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    #: By flow and version: runs that could be driven now and that nobody drives.
    forsaken: dict[str, list[str]] = field(default_factory=dict)


def doctor(asked: argparse.Namespace) -> int:
    """Look at everything; 3 if the store has a problem."""
    report = asyncio.run(_look(asked))
    problems = list(report.health.problems)
    if asked.json:
        print_json(
            {
                "store": report.health.store,
                "facts": dict(report.health.facts),
                "problems": problems,
                "settings": report.settings,
                "runs": report.statuses,
                "forsaken": report.forsaken,
            }
        )
    else:
        _print(report)
    return StoreError.exit_code if problems else 0


async def _look(asked: argparse.Namespace) -> Report:
    settings = Settings.from_environment()
    async with open_app(asked.store, drive=False, must_exist=True, only_looks=True) as app:
        report = Report(await app.health(), _named(settings, key_ids_of(app.store)))
        found = await _all(app)
        report.runs = len(found)
        for run in found:
            status = run.header.status
            report.statuses[status] = report.statuses.get(status, 0) + 1
        for run in await forsaken(app, found):
            name = f"{run.header.flow} (version {run.header.version})"
            report.forsaken.setdefault(name, []).append(run.head.run_id)
        return report


def _named(settings: Settings, key_ids: list[str]) -> dict[str, str]:
    """What each variable says, or would; no password, and of keys only what they are called."""
    named = {each.name: str(getattr(settings, each.name)) for each in fields(settings)}
    named |= {name: _without_password(named[name]) for name in _URLS}
    named["retention"] = ",".join(map(_without_password, named["retention"].split(",")))
    named["key"] = ",".join(f"(key id {each})" for each in key_ids)
    return {f"OUTLIVE_{name.upper()}": value for name, value in named.items()}


def _without_password(url: str) -> str:
    return _SECRET.sub(r"\1\2***", url)


async def _all(app: App) -> list[Found]:
    found: list[Found] = []
    after = None
    while True:
        page = await app.find(limit=PAGE_MAX, after=after)
        found += page.items
        after = page.next
        if after is None:
            return found


async def forsaken(app: App, found: list[Found]) -> list[Found]:
    """Those that were due and held by nobody, and still are after a while."""
    first = await app.unattended(found)
    if not first:
        return []
    await asyncio.sleep(PATIENCE_SECONDS)
    still = await app.unattended([run for run in found if run.head.run_id in first])
    return [run for run in found if run.head.run_id in still]


def _print(report: Report) -> None:
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
    sound = "has problems" if report.health.problems else "is sound"
    print_line(f"the store {sound}" + ("; some runs need a worker" if report.forsaken else ""))
