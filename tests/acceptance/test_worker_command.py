"""``outlive worker``: drives what others left, hands over when told, and never dies in silence."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from tests.acceptance.conftest import SECONDS_MAX, Cli
from tests.harness.processes import until


def status(cli: Cli, run_id: str) -> str:
    (found,) = [run for run in cli("runs", "--json").json if run["id"] == run_id]
    return str(found["status"])


def leave_behind(cli: Cli, run_id: str) -> None:
    """A run whose process was killed in the middle of a step."""
    process = cli.start("run", "shop:wait_for", "--id", run_id, "--input", json.dumps([run_id]))
    until((cli.folder / f"{run_id}.waiting").exists, "the step to begin")
    process.kill()
    process.wait()


def stop(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str]:
    process.send_signal(number)
    _, err = process.communicate(timeout=SECONDS_MAX)
    return process.returncode, err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_ends_what_was_left_behind_and_stops_when_told(
    cli: Cli, number: signal.Signals
) -> None:
    """Runs of killed processes are taken over; a signal is a good end."""
    leave_behind(cli, "a")
    leave_behind(cli, "b")
    (cli.folder / "a").touch()
    (cli.folder / "b").touch()
    worker = cli.start_worker("--concurrency", "1")
    until(lambda: status(cli, "a") == status(cli, "b") == "completed", "both to end")

    assert (0, True) == ((ended := stop(worker, number))[0], "handed its runs over" in ended[1])


def test_a_stopped_worker_hands_over(cli: Cli) -> None:
    """What it drove is free at once, and the next one ends it."""
    leave_behind(cli, "a")
    (cli.folder / "a.waiting").unlink()
    worker = cli.start_worker()
    until((cli.folder / "a.waiting").exists, "the step to begin")

    assert 0 == stop(worker, signal.SIGTERM)[0]
    (run,) = cli("runs", "--json").json
    assert None is run["worker"]
    (cli.folder / "a").touch()
    ran = cli("resume", "a", "shop")
    assert (0, "a\n") == (ran.code, ran.out)


def test_a_worker_says_what_it_drives(cli: Cli) -> None:
    """As JSON, too."""
    worker = cli.start("worker", "shop", "--json")
    assert worker.stdout is not None
    lines = []
    until(lambda: lines.append(worker.stdout.readline()) or lines[-1] == "}\n", "the last line")

    told = json.loads("".join(lines))
    assert {"buy", "greet", "nap"} < set(told["flows"])
    assert 0 == stop(worker, signal.SIGTERM)[0]


def test_a_worker_whose_store_fails_ends_with_exit_code_3(cli: Cli) -> None:
    """A disk that is full is no reason to hang: one line, and what was acknowledged is kept."""
    sleeper = cli.start("run", "shop:nap", "--id", "n", "--input", "[1]")
    assert sleeper.stderr is not None
    assert "sleeps" in sleeper.stderr.readline()
    sleeper.kill()
    hoarder = cli.start("run", "shop:hoard", "--id", "h", "--input", "[100, 2000]")
    until(
        lambda: cli.database.exists() and "h" in {run["id"] for run in cli("runs", "--json").json},
        "the run to be there",
    )
    hoarder.kill()
    hoarder.wait()

    blocks = str((cli.database.stat().st_size + 2_000_000) // 512)
    limited = ("sh", "-c", f'ulimit -f {blocks}; exec "$@"', "sh")
    worker = cli.start_worker(prefix=limited)
    _, err = worker.communicate(timeout=SECONDS_MAX)

    assert 3 == worker.returncode, err
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("outlive: ")
    assert 0 == cli("verify").code


def test_a_run_that_kills_its_workers_is_quarantined(cli: Cli) -> None:
    """``runs`` says why; only who resumes it by hand gives it new chances."""
    ran = cli("run", "shop:crash", "--id", "c")
    while ran.code == -signal.SIGABRT:
        ran = cli("resume", "c", "shop")
    listed = cli("runs", "--status", "quarantined")
    again = cli("resume", "c", "shop")

    assert (1, True) == (ran.code, "run c is quarantined" in ran.err)
    assert "without one new outcome" in listed.out
    assert -signal.SIGABRT == again.code
