"""The commands and their options; what each does is in the module that it names."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from typing import NoReturn, TypeAlias

from outlive.cli.completion import completion
from outlive.cli.doctor import doctor
from outlive.cli.drive import resume, run
from outlive.cli.mail import answer, cancel, retry, signal
from outlive.cli.resolve import resolve
from outlive.cli.retain import restore, retain
from outlive.cli.runs import runs
from outlive.cli.schedules import ACTIONS, schedules
from outlive.cli.show import show
from outlive.cli.verify import verify
from outlive.cli.worker import worker

Do = Callable[[argparse.Namespace], int]

STATUSES = (
    "pending", "running", "waiting", "in_doubt", "undoing", "completed", "failed", "cancelled",
    "quarantined",
)  # fmt: skip
_CODES = (
    "exit codes: 0 done, 1 the run failed or can't go on by itself, 2 usage, 3 store or data error"
)


def demo(argv: list[str]) -> int:
    """The demo parses its own options, and is imported only when it is wanted."""
    return int(import_module("outlive.cli.demo").main(argv))


_Subparsers = argparse._SubParsersAction  # noqa: SLF001 - it has no other name
Commands: TypeAlias = "_Subparsers[Parser]"


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}; see `{self.prog} --help`", file=sys.stderr)
        raise SystemExit(2)

    def commands(self) -> dict[str, Parser]:
        """The commands that it offers."""
        found = [each.choices for each in self._actions if isinstance(each, _Subparsers)]
        return {name: parser for choices in found for name, parser in choices.items()}

    def words(self) -> list[str]:
        """What may be typed here: words that are one of a few, and long options."""
        chosen = [str(word) for each in self._actions for word in each.choices or ()]
        options = [option for each in self._actions for option in each.option_strings]
        return chosen + [option for option in options if option.startswith("--")]


def build_parser() -> Parser:
    """Everything that can be typed after ``outlive``."""
    parser = Parser(
        prog="outlive",
        description="Durable runs: start them, look at them, settle their doubts, check them.",
        epilog=_CODES,
        parents=[_everywhere()],
        allow_abbrev=False,
    )
    parser.set_defaults(store=None, debug=False)
    commands = parser.add_subparsers(metavar=None, required=True, dest="command")
    _add_demo(commands)
    _add_run(commands)
    _add_runs(commands)
    _add_show(commands)
    _add_resume(commands)
    _add_answer(commands)
    _add_signal(commands)
    _add_cancel(commands)
    _add_retry(commands)
    _add_resolve(commands)
    _add_worker(commands)
    _add_schedules(commands)
    _add_verify(commands)
    _add_retain(commands)
    _add_restore(commands)
    _add_doctor(commands)
    _add_completion(commands)
    return parser


def _everywhere() -> Parser:
    """Options that may stand before and behind the command."""
    options = Parser(add_help=False, argument_default=argparse.SUPPRESS)
    options.add_argument(
        "--store",
        metavar="URL",
        help="the store (default: OUTLIVE_STORE, or a file in this folder)",
    )
    options.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return options


def _add(commands: Commands, name: str, do: Do, about: str) -> Parser:
    parser = commands.add_parser(
        name,
        help=about[0].lower() + about[1:].partition(".")[0],
        description=about,
        epilog=_CODES,
        parents=[_everywhere()],
        allow_abbrev=False,
    )
    parser.set_defaults(do=do)
    return parser


def _add_json(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def _add_demo(commands: Commands) -> None:
    # Only listed here: what follows `demo` on the command line is the demo's own business.
    parser = commands.add_parser(
        "demo", help="watch an agent being killed again and again", add_help=False
    )
    parser.set_defaults(do=lambda asked: demo([]))


def _add_run(commands: Commands) -> None:
    parser = _add(
        commands,
        "run",
        run,
        "Start a run, or go on with the one of that id, and print its outcome. "
        "The same id with the same flow and arguments is the same run, however often it is asked "
        "for.",
    )
    parser.add_argument("flow", metavar="MODULE:FLOW", help="the flow, in a module found from here")
    parser.add_argument("--id", metavar="ID", help="the run's id (default: a new one)")
    parser.add_argument(
        "--input",
        metavar="JSON",
        help="the flow's arguments: a list (by position) or an object (by name)",
    )
    _add_json(parser)


def _add_runs(commands: Commands) -> None:
    parser = _add(
        commands, "runs", runs, "List runs, the newest last. Each line is one run as it stands now."
    )
    parser.add_argument("--status", choices=STATUSES, metavar="STATUS", help=", ".join(STATUSES))
    parser.add_argument("--flow", metavar="NAME", help="only runs of this flow")
    parser.add_argument("--tag", metavar="NAME=VALUE", help="only runs with this tag")
    parser.add_argument(
        "--limit", metavar="N", type=positive, default=100, help="only the newest N (default: 100)"
    )
    _add_json(parser)


def _add_show(commands: Commands) -> None:
    parser = _add(
        commands,
        "show",
        show,
        "Show a run and everything that happened to it. The flow's code is not needed.",
    )
    parser.add_argument("run", metavar="RUN", help="the run's id")
    parser.add_argument("--follow", action="store_true", help="go on until the run ends")
    _add_json(parser)


def _add_resume(commands: Commands) -> None:
    parser = _add(
        commands,
        "resume",
        resume,
        "Drive one run here until it ends or waits for a human; a sleeping one is waited for. "
        "A quarantined run gets new chances.",
    )
    parser.add_argument("run", metavar="RUN", help="the run's id")
    parser.add_argument(
        "modules", metavar="MODULE", nargs="*", help="a module that defines the run's flow"
    )
    _add_json(parser)


def _add_by(parser: Parser) -> None:
    parser.add_argument("--by", metavar="WHO", help="who says so (default: whoever is logged in)")


def _add_answer(commands: Commands) -> None:
    parser = _add(
        commands,
        "answer",
        answer,
        "Answer a question of a run. `outlive show RUN` lists what it asks; "
        "a stale, second or wrongly typed answer is refused.",
    )
    parser.add_argument("run", metavar="RUN", help="the run's id")
    parser.add_argument("value", metavar="VALUE", help="JSON, or a text where a text is wanted")
    parser.add_argument("--question", metavar="ID", help="which one, if the run asks several")
    _add_by(parser)
    _add_json(parser)


def _add_signal(commands: Commands) -> None:
    parser = _add(
        commands,
        "signal",
        signal,
        "Send a run a signal, which is kept until its flow takes it. "
        "With --id a signal is sent once, however often this is repeated.",
    )
    parser.add_argument("run", metavar="RUN", help="the run's id")
    parser.add_argument("name", metavar="NAME", help="the signal that the flow waits for")
    parser.add_argument("value", metavar="VALUE", help="JSON, or any text that is none")
    parser.add_argument("--id", metavar="ID", help="the signal's own id (default: a new one)")
    _add_json(parser)


def _add_cancel(commands: Commands) -> None:
    parser = _add(
        commands,
        "cancel",
        cancel,
        "Ask a run to stop. It does at its next durable point: doubts are settled, and what "
        "happened is undone where that was declared.",
    )
    parser.add_argument("run", metavar="RUN", help="the run's id")
    _add_by(parser)
    _add_json(parser)


def _add_retry(commands: Commands) -> None:
    parser = _add(
        commands,
        "retry",
        retry,
        "Give a failed run another try, from where it failed. "
        "What was done before is kept; a worker, or `outlive resume`, goes on with it.",
    )
    parser.add_argument("run", metavar="RUN", help="the run's id")
    _add_by(parser)
    _add_json(parser)


def _add_doctor(commands: Commands) -> None:
    parser = _add(
        commands,
        "doctor",
        doctor,
        "Look at the store, the settings and the runs: what is wrong, and what nobody drives. "
        "Nothing is changed.",
    )
    _add_json(parser)


def _complete(asked: argparse.Namespace) -> int:
    offered = build_parser().commands()
    return completion(asked, {name: parser.words() for name, parser in offered.items()})


def _add_completion(commands: Commands) -> None:
    parser = _add(
        commands,
        "completion",
        _complete,
        "Print a script that completes commands and options in a shell. "
        'For bash: eval "$(outlive completion bash)".',
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="which shell")


def _add_resolve(commands: Commands) -> None:
    parser = _add(
        commands,
        "resolve",
        resolve,
        "Settle an effect in doubt: say whether it happened. `outlive show RUN` lists the doubts.",
    )
    parser.add_argument("run", metavar="RUN", help="the run's id")
    parser.add_argument("step", metavar="STEP", help="the effect, as `outlive show` names it")
    word = parser.add_mutually_exclusive_group(required=True)
    word.add_argument("--happened", metavar="JSON", help="it happened, with this outcome")
    word.add_argument("--not-happened", action="store_true", help="it did not; try it again")
    word.add_argument("--fail", action="store_true", help="nobody will know: tell the flow so")
    _add_json(parser)


def _add_worker(commands: Commands) -> None:
    parser = _add(
        commands,
        "worker",
        worker,
        "Drive every run of these modules' flows that nobody drives, until stopped. "
        "SIGINT and SIGTERM hand the runs over.",
    )
    parser.add_argument("modules", metavar="MODULE", nargs="+", help="a module that defines flows")
    parser.add_argument(
        "--concurrency", metavar="N", type=positive, default=100, help="runs in memory at a time"
    )
    _add_json(parser)


def _add_schedules(commands: Commands) -> None:
    parser = _add(
        commands,
        "schedules",
        schedules,
        "List schedules: when each starts a run next, and what it started last. "
        "Or pause, resume or remove one, or fire it now, beside its instants.",
    )
    parser.add_argument("action", choices=ACTIONS, nargs="?", help="what to do to one of them")
    parser.add_argument("name", metavar="NAME", nargs="?", help="its name")
    _add_json(parser)


def _add_verify(commands: Commands) -> None:
    parser = _add(
        commands,
        "verify",
        verify,
        "Check every record, link and head of every journal and name what is damaged. "
        "Nothing is changed.",
    )
    parser.add_argument("run", metavar="RUN", nargs="?", help="only this run")
    parser.add_argument("--archive", metavar="FILE", help="check a file of archived runs instead")
    _add_json(parser)


def _add_retain(commands: Commands) -> None:
    parser = _add(
        commands,
        "retain",
        retain,
        "Delete ended runs that the rules let go, in small portions. "
        "The rules are those of OUTLIVE_RETENTION, or given here; without any, nothing goes.",
    )
    parser.add_argument(
        "--rules", metavar="RULES", help='for example "completed=30d,failed=90d,keep_last=100"'
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would go")
    _add_json(parser)


def _add_restore(commands: Commands) -> None:
    parser = _add(
        commands,
        "restore",
        restore,
        "Put the runs of an archive's file into a store, as they were. "
        "Ids of runs that were deleted not long ago are still taken: choose another store.",
    )
    parser.add_argument("file", metavar="FILE", help="a file that retention wrote")
    parser.add_argument("--run", metavar="RUN", help="only this run")
    _add_json(parser)


def positive(text: str) -> int:
    """A count from the command line."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return number
