"""The commands and their options; each names the function that implements it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

from outlive.cli.doctor import doctor
from outlive.cli.drive import diff, fork, resume, run, worker
from outlive.cli.grammar import (
    CODES,
    Commands,
    Do,
    Parser,
    ShowVersion,
    add_command,
    add_json,
    completion,
    everywhere,
    positive,
)
from outlive.cli.mail import answer, cancel, resolve, retry, signal
from outlive.cli.output import LEVELS
from outlive.cli.queues import ACTIONS, queues, schedules, set_queue
from outlive.cli.runs import doubts, list_workers, questions, runs
from outlive.cli.show import show
from outlive.cli.store import accept_loss, erase, key, rekey, restore, retain
from outlive.cli.verify import verify
from outlive.model.defaults import FIND_LIMIT, WORKER_CONCURRENCY
from outlive.model.run import STATUSES

#: The positional and keyword arguments of ``add_argument``.
Argument: TypeAlias = tuple[str, dict[str, Any]]


class Command(NamedTuple):
    """One command: its name, its function, its help, its arguments."""

    name: str
    do: Do
    text: str
    arguments: Sequence[Argument] = ()
    #: Options of which exactly one must be given.
    one_of: Sequence[Argument] = ()
    has_json: bool = True

    def add_to(self, commands: Commands) -> None:
        """Add it to the parser."""
        parser = add_command(commands, self.name, self.do, self.text)
        for name, how in self.arguments:
            parser.add_argument(name, **how)
        if self.one_of:
            group = parser.add_mutually_exclusive_group(required=True)
            for name, how in self.one_of:
                group.add_argument(name, **how)
        if self.has_json:
            add_json(parser)


def arg(name: str, metavar: str | None, text: str, **how: Any) -> Argument:
    """An argument or option with a value."""
    return name, {"metavar": metavar, "help": text, **how}


def flag(name: str, text: str) -> Argument:
    """An option without a value."""
    return name, {"action": "store_true", "help": text}


def demo(argv: list[str]) -> int:
    """Run the demo, which parses its own options and is imported only when needed."""
    return int(import_module("outlive.cli.demo").main(argv))


def build_parser() -> Parser:
    """Build the parser of all commands."""
    parser = Parser(
        prog="outlive",
        description="Durable runs: start them, look at them, settle their doubts, check them.",
        epilog=CODES,
        parents=[everywhere()],
        allow_abbrev=False,
    )
    parser.set_defaults(store=None, debug=False)
    parser.add_argument("--version", action=ShowVersion, nargs=0, help="print the release")
    commands = parser.add_subparsers(metavar=None, required=True, dest="command")
    # Only listed here: the demo parses its own arguments.
    listed = commands.add_parser(
        "demo", help="watch an agent being killed again and again", add_help=False
    )
    listed.set_defaults(do=lambda asked: demo([]))
    for command in (*_RUNS, *_MAIL, *_WORKERS, *_STORE):
        command.add_to(commands)
    return parser


def _complete(asked: argparse.Namespace) -> int:
    offered = build_parser().commands()
    return completion(asked, {name: parser.words() for name, parser in offered.items()})


_RUN = arg("run", "RUN", "the run's id")
_BY = arg("--by", "WHO", "who says so (default: the user who is logged in)")


def _limit(what: str) -> Argument:
    text = f"{what} (default: {FIND_LIMIT})"
    return arg("--limit", "N", text, type=positive, default=FIND_LIMIT)


_RUNS = (
    Command(
        "run",
        run,
        "Start a run, or continue the one with this id, and print its outcome. "
        "The same id with the same flow and arguments is the same run, however often it is asked "
        "for.",
        (
            arg("flow", "MODULE:FLOW", "the flow, in a module that can be imported from here"),
            arg("--id", "ID", "the run's id (default: a new one)"),
            arg("--input", "JSON", "its arguments: a list (by position) or an object (by name)"),
        ),
    ),
    Command(
        "runs",
        runs,
        "List runs, the newest last. Each line shows the current state of one run.",
        (
            arg(
                "--status",
                "STATUS",
                f"{', '.join(STATUSES)}; may be repeated",
                choices=STATUSES,
                action="append",
            ),
            arg("--flow", "NAME", "only runs of this flow"),
            arg("--tag", "NAME=VALUE", "only runs with this tag, may be repeated", action="append"),
            arg("--parent", "RUN", "only children of this run"),
            arg("--queue", "NAME", "only runs of this queue"),
            arg("--driver", "WORKER", "only runs that this worker holds"),
            arg("--prefix", "TEXT", "only runs whose id begins so"),
            arg("--error", "ERROR", 'only runs that failed so: "ValueError at shop.py:pay"'),
            arg("--since", "TIME", 'started so long ago at most: "1h", "2d"'),
            arg("--until", "TIME", "started so long ago at least"),
            arg("--after", "CURSOR", "older runs: what the list before says"),
            flag("--watch", "then print each run that moves, until you end it (Ctrl-C)"),
            _limit("only the newest N"),
        ),
    ),
    Command(
        "show",
        show,
        "Show a run and everything that happened to it. The flow's code is not needed. "
        "With a step, its whole arguments, values and errors.",
        (
            _RUN,
            arg("step", "STEP", "only this step, in full", nargs="?"),
            flag("--follow", "print new events until the run ends"),
        ),
    ),
    Command(
        "questions",
        questions,
        "List the questions of all runs that wait for an answer, those of the oldest runs first.",
        (_limit("only so many"),),
    ),
    Command(
        "doubts",
        doubts,
        "List the effects in doubt, those of the oldest runs first: what went wrong, who can tell "
        "whether each happened, and the command that says so.",
        (_limit("only so many"),),
    ),
    Command(
        "resume",
        resume,
        "Drive one run here until it ends or waits for a human; a sleeping one is waited for. "
        "A quarantined run gets new chances.",
        (_RUN, arg("modules", "MODULE", "a module that defines the run's flow", nargs="*")),
    ),
)
_MAIL = (
    Command(
        "answer",
        answer,
        "Answer a question of a run. `outlive show RUN` lists its questions; "
        "a stale, second or wrongly typed answer is refused.",
        (
            _RUN,
            arg("value", "VALUE", "JSON, or a text where a text is wanted"),
            arg("--question", "ID", "which one, if the run asks several"),
            _BY,
        ),
    ),
    Command(
        "signal",
        signal,
        "Send a run a signal, which is kept until its flow takes it. "
        "With --id a signal is sent once, however often this is repeated.",
        (
            _RUN,
            arg("name", "NAME", "the signal that the flow waits for"),
            arg("value", "VALUE", "JSON, or any other text"),
            arg("--id", "ID", "the signal's own id (default: a new one)"),
            _BY,
        ),
    ),
    Command(
        "cancel",
        cancel,
        "Ask a run to stop. It stops at its next durable point: doubts are settled, and effects "
        "that declare an undo are undone.",
        (_RUN, _BY),
    ),
    Command(
        "retry",
        retry,
        "Retry a failed run from where it failed. "
        "What was done before is kept; a worker, or `outlive resume`, continues it.",
        (_RUN, _BY),
    ),
    Command(
        "resolve",
        resolve,
        "Settle an effect in doubt: say whether it happened. `outlive show RUN` lists the doubts.",
        (_RUN, arg("step", "STEP", "the effect, as `outlive show` names it"), _BY),
        one_of=(
            arg("--happened", "JSON", "it happened, with this outcome"),
            flag("--not-happened", "it did not happen; try it again"),
            flag("--fail", "nobody can tell: fail the effect"),
        ),
    ),
)
_WORKERS = (
    Command(
        "worker",
        worker,
        "Drive every run of these modules' flows that nobody drives, until stopped. "
        "SIGINT and SIGTERM hand the runs over.",
        (
            arg("modules", "MODULE", "a module that defines flows", nargs="+"),
            arg(
                "--concurrency",
                "N",
                f"runs in memory at a time (default: {WORKER_CONCURRENCY})",
                type=positive,
                default=WORKER_CONCURRENCY,
            ),
            arg(
                "--queue",
                "NAME",
                'only runs of this queue, may be repeated (runs that name none are in "default")',
                action="append",
                dest="queues",
            ),
            arg(
                "--log-level",
                None,
                "what to log: debug, info (each run's start and end), warning or error "
                "(default: info, or as your code configures it)",
                choices=LEVELS,
            ),
        ),
    ),
    Command(
        "workers",
        list_workers,
        "List the workers of all processes: where each runs, when it beat last, what it drives, "
        "and how many runs it holds.",
    ),
    Command(
        "queues",
        queues,
        "List the queues that have limits or runs: how many wait and since when, how many are "
        "held, how much of a rate is used.",
    ),
    Command(
        "set-queue",
        set_queue,
        "Set the limits of a queue, for all workers, from now on. Limits that are not given are "
        "removed; runs that are held stay held.",
        (
            arg("name", "NAME", "the queue"),
            arg("--concurrency", "N", "runs held at once", type=positive),
            arg("--per-key", "N", "of the same queue_key", type=positive),
            arg("--per-worker", "N", "by one worker", type=positive),
            arg("--rate", "UNITS/TIME", "starts, or their units: 100/1m"),
        ),
    ),
    Command(
        "schedules",
        schedules,
        "List schedules: when each starts a run next, and what it started last. "
        "Or pause, resume or remove one, or fire it now, beside its instants.",
        (
            arg("action", None, "what to do to one of them", choices=ACTIONS, nargs="?"),
            arg("name", "NAME", "its name", nargs="?"),
        ),
    ),
)
_STORE = (
    Command(
        "verify",
        verify,
        "Check every record, link and head of every journal and name what is damaged. "
        "Nothing is changed.",
        (
            arg("run", "RUN", "only this run", nargs="?"),
            arg("--archive", "FILE", "check a file of archived runs instead"),
        ),
    ),
    Command(
        "fork",
        fork,
        "Make a run that continues from some event of another one, and print its id. "
        "Everything before is shared: its steps and effects are not run again.",
        (
            arg("run", "RUN", "the run to fork"),
            arg("--at", "SEQ", "after this event of it", type=positive),
            arg("--set", "STEP=JSON", "after this step, with that outcome", action="append"),
            arg("--id", "ID", "the fork's id (default: a new one)"),
            _BY,
        ),
    ),
    Command(
        "diff",
        diff,
        "Show the steps of two runs side by side, and their first difference. "
        "Arguments and outcomes are compared by their digests.",
        (arg("a", "A", "a run"), arg("b", "B", "another one")),
    ),
    Command(
        "retain",
        retain,
        "Delete ended runs by the retention rules, in small portions. "
        "The rules are those of OUTLIVE_RETENTION, or given here; without any, nothing is deleted.",
        (
            arg("--rules", "RULES", 'for example "completed=30d,failed=90d,keep_last=100"'),
            flag("--dry-run", "only print what would be deleted"),
        ),
    ),
    Command(
        "restore",
        restore,
        "Put the runs of an archive file into a store, as they were. "
        "Ids of runs that were deleted recently are still taken: choose another store.",
        (
            arg("file", "FILE", "a file that retention wrote"),
            arg("--run", "RUN", "only this run"),
        ),
    ),
    Command(
        "accept-loss",
        accept_loss,
        "Continue with a store that has less than it acknowledged, after a failover or a restored "
        "backup. Runs continue from their present end: effects that are missing are done again.",
        (
            arg(
                "--timeline",
                "N",
                "the server's timeline, as the error names it: you know what is missing there",
                type=positive,
            ),
        ),
    ),
    Command(
        "doctor",
        doctor,
        "Check the store, the settings and the runs: what is wrong, and what nobody drives. "
        "Nothing is changed.",
    ),
    Command(
        "key",
        key,
        "Print a new key for OUTLIVE_KEY. Keep it apart from the data.",
        has_json=False,
    ),
    Command(
        "rekey",
        rekey,
        "Wrap every data key with the first key of OUTLIVE_KEY (new key, comma, old key). "
        "Runs continue meanwhile; if it is killed, run it again.",
    ),
    Command(
        "erase",
        erase,
        "Erase an ended run with its whole family for good: drop the data key, then the runs.",
        (
            arg("run", "RUN", "any run of the family"),
            flag("--yes", "confirm: erased data can't be recovered"),
        ),
    ),
    Command(
        "completion",
        _complete,
        "Print a script that completes commands and options in a shell. "
        'For bash: eval "$(outlive completion bash)".',
        (arg("shell", None, "which shell", choices=("bash", "zsh", "fish")),),
        has_json=False,
    ),
)
