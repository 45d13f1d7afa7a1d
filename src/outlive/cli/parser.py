"""The commands and their options; each names the module that implements it."""

from __future__ import annotations

import argparse
from importlib import import_module

from outlive.cli.doctor import doctor
from outlive.cli.drive import diff, fork, resume, run, worker
from outlive.cli.grammar import (
    CODES,
    Commands,
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
from outlive.cli.runs import runs, show
from outlive.cli.store import accept_loss, erase, key, rekey, restore, retain
from outlive.cli.verify import verify
from outlive.model.defaults import FIND_LIMIT, WORKER_CONCURRENCY
from outlive.model.run import STATUSES


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
    _add_queues(commands)
    _add_set_queue(commands)
    _add_schedules(commands)
    _add_verify(commands)
    _add_fork(commands)
    _add_diff(commands)
    _add_retain(commands)
    _add_restore(commands)
    _add_accept_loss(commands)
    _add_doctor(commands)
    _add_seal(commands)
    _add_completion(commands)
    return parser


def _add_demo(commands: Commands) -> None:
    # Only listed here: the demo parses its own arguments.
    parser = commands.add_parser(
        "demo", help="watch an agent being killed again and again", add_help=False
    )
    parser.set_defaults(do=lambda asked: demo([]))


def _add_run(commands: Commands) -> None:
    parser = add_command(
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
        "--input", metavar="JSON", help="its arguments: a list (by position) or an object (by name)"
    )
    add_json(parser)


def _add_runs(commands: Commands) -> None:
    parser = add_command(
        commands, "runs", runs, "List runs, the newest last. Each line is one run as it stands now."
    )
    parser.add_argument("--status", choices=STATUSES, metavar="STATUS", help=", ".join(STATUSES))
    parser.add_argument("--flow", metavar="NAME", help="only runs of this flow")
    parser.add_argument("--tag", metavar="NAME=VALUE", help="only runs with this tag")
    parser.add_argument(
        "--limit",
        metavar="N",
        type=positive,
        default=FIND_LIMIT,
        help=f"only the newest N (default: {FIND_LIMIT})",
    )
    add_json(parser)


def _add_show(commands: Commands) -> None:
    parser = add_command(
        commands,
        "show",
        show,
        "Show a run and everything that happened to it. The flow's code is not needed. "
        "With a step, its whole arguments, values and errors.",
    )
    parser.add_argument("run", metavar="RUN", help="the run's id")
    parser.add_argument("step", metavar="STEP", nargs="?", help="only this step, nothing cut off")
    parser.add_argument("--follow", action="store_true", help="go on until the run ends")
    add_json(parser)


def _add_resume(commands: Commands) -> None:
    parser = add_command(
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
    add_json(parser)


def _add_by(parser: Parser) -> None:
    parser.add_argument("--by", metavar="WHO", help="who says so (default: whoever is logged in)")


def _add_answer(commands: Commands) -> None:
    parser = add_command(
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
    add_json(parser)


def _add_signal(commands: Commands) -> None:
    parser = add_command(
        commands,
        "signal",
        signal,
        "Send a run a signal, which is kept until its flow takes it. "
        "With --id a signal is sent once, however often this is repeated.",
    )
    parser.add_argument("run", metavar="RUN", help="the run's id")
    parser.add_argument("name", metavar="NAME", help="the signal that the flow waits for")
    parser.add_argument("value", metavar="VALUE", help="JSON, or any other text")
    parser.add_argument("--id", metavar="ID", help="the signal's own id (default: a new one)")
    add_json(parser)


def _add_cancel(commands: Commands) -> None:
    parser = add_command(
        commands,
        "cancel",
        cancel,
        "Ask a run to stop. It does at its next durable point: doubts are settled, and what "
        "happened is undone where that was declared.",
    )
    parser.add_argument("run", metavar="RUN", help="the run's id")
    _add_by(parser)
    add_json(parser)


def _add_retry(commands: Commands) -> None:
    parser = add_command(
        commands,
        "retry",
        retry,
        "Give a failed run another try, from where it failed. "
        "What was done before is kept; a worker, or `outlive resume`, goes on with it.",
    )
    parser.add_argument("run", metavar="RUN", help="the run's id")
    _add_by(parser)
    add_json(parser)


def _add_doctor(commands: Commands) -> None:
    parser = add_command(
        commands,
        "doctor",
        doctor,
        "Look at the store, the settings and the runs: what is wrong, and what nobody drives. "
        "Nothing is changed.",
    )
    add_json(parser)


def _complete(asked: argparse.Namespace) -> int:
    offered = build_parser().commands()
    return completion(asked, {name: parser.words() for name, parser in offered.items()})


def _add_completion(commands: Commands) -> None:
    parser = add_command(
        commands,
        "completion",
        _complete,
        "Print a script that completes commands and options in a shell. "
        'For bash: eval "$(outlive completion bash)".',
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="which shell")


def _add_resolve(commands: Commands) -> None:
    parser = add_command(
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
    add_json(parser)


def _add_worker(commands: Commands) -> None:
    parser = add_command(
        commands,
        "worker",
        worker,
        "Drive every run of these modules' flows that nobody drives, until stopped. "
        "SIGINT and SIGTERM hand the runs over.",
    )
    parser.add_argument("modules", metavar="MODULE", nargs="+", help="a module that defines flows")
    parser.add_argument(
        "--concurrency",
        metavar="N",
        type=positive,
        default=WORKER_CONCURRENCY,
        help=f"runs in memory at a time (default: {WORKER_CONCURRENCY})",
    )
    parser.add_argument(
        "--queue",
        metavar="NAME",
        action="append",
        dest="queues",
        help='only runs of this queue, may be repeated (runs that name none are in "default")',
    )
    parser.add_argument(
        "--log-level",
        choices=LEVELS,
        help="what to log: debug, info (each run's start and end), warning or error "
        "(default: info, or as your code configures it)",
    )
    add_json(parser)


def _add_queues(commands: Commands) -> None:
    parser = add_command(
        commands,
        "queues",
        queues,
        "List the queues that have limits or runs: how many wait and since when, how many are "
        "held, what is spent of a rate.",
    )
    add_json(parser)


def _add_set_queue(commands: Commands) -> None:
    parser = add_command(
        commands,
        "set-queue",
        set_queue,
        "Set the limits of a queue, for all workers, from now on. What is not given is not "
        "limited any more; runs that are held stay held.",
    )
    parser.add_argument("name", metavar="NAME", help="the queue")
    parser.add_argument("--concurrency", metavar="N", type=positive, help="runs held at once")
    parser.add_argument("--per-key", metavar="N", type=positive, help="of the same queue_key")
    parser.add_argument("--per-worker", metavar="N", type=positive, help="by one worker")
    parser.add_argument("--rate", metavar="UNITS/TIME", help="starts, or their units: 100/1m")
    add_json(parser)


def _add_schedules(commands: Commands) -> None:
    parser = add_command(
        commands,
        "schedules",
        schedules,
        "List schedules: when each starts a run next, and what it started last. "
        "Or pause, resume or remove one, or fire it now, beside its instants.",
    )
    parser.add_argument("action", choices=ACTIONS, nargs="?", help="what to do to one of them")
    parser.add_argument("name", metavar="NAME", nargs="?", help="its name")
    add_json(parser)


def _add_verify(commands: Commands) -> None:
    parser = add_command(
        commands,
        "verify",
        verify,
        "Check every record, link and head of every journal and name what is damaged. "
        "Nothing is changed.",
    )
    parser.add_argument("run", metavar="RUN", nargs="?", help="only this run")
    parser.add_argument("--archive", metavar="FILE", help="check a file of archived runs instead")
    add_json(parser)


def _add_fork(commands: Commands) -> None:
    parser = add_command(
        commands,
        "fork",
        fork,
        "Make a run that goes on from some place of another one, and print its id. "
        "What came before is shared: its steps and effects are not run again.",
    )
    parser.add_argument("run", metavar="RUN", help="the run to fork")
    parser.add_argument("--at", metavar="SEQ", type=positive, help="behind this event of it")
    parser.add_argument(
        "--set", metavar="STEP=JSON", action="append", help="behind this step, with that outcome"
    )
    parser.add_argument("--id", metavar="ID", help="the fork's id (default: a new one)")
    add_json(parser)


def _add_diff(commands: Commands) -> None:
    parser = add_command(
        commands,
        "diff",
        diff,
        "Show the steps of two runs side by side, and where they first differ. "
        "Arguments and outcomes are compared by their digests.",
    )
    parser.add_argument("a", metavar="A", help="a run")
    parser.add_argument("b", metavar="B", help="another one")
    add_json(parser)


def _add_retain(commands: Commands) -> None:
    parser = add_command(
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
    add_json(parser)


def _add_accept_loss(commands: Commands) -> None:
    parser = add_command(
        commands,
        "accept-loss",
        accept_loss,
        "Go on with a store that has less than it acknowledged, after a failover or a restored "
        "backup. Runs begin again where they now end: effects that are missing are done again.",
    )
    parser.add_argument(
        "--timeline",
        type=positive,
        metavar="N",
        help="the server's timeline, as the error names it: you know what is missing there",
    )
    add_json(parser)


def _add_restore(commands: Commands) -> None:
    parser = add_command(
        commands,
        "restore",
        restore,
        "Put the runs of an archive's file into a store, as they were. "
        "Ids of runs that were deleted not long ago are still taken: choose another store.",
    )
    parser.add_argument("file", metavar="FILE", help="a file that retention wrote")
    parser.add_argument("--run", metavar="RUN", help="only this run")
    add_json(parser)


def _add_seal(commands: Commands) -> None:
    add_command(
        commands, "key", key, "Print a new key for OUTLIVE_KEY. Keep it where the data is not."
    )
    parser = add_command(
        commands,
        "rekey",
        rekey,
        "Wrap every data key with the first key of OUTLIVE_KEY (new key, comma, old key). "
        "Runs go on meanwhile; killed, it goes on where it was.",
    )
    add_json(parser)
    parser = add_command(
        commands,
        "erase",
        erase,
        "Forget an ended run with its whole family for good: drop the data key, then the runs.",
    )
    parser.add_argument("run", metavar="RUN", help="any run of the family")
    parser.add_argument("--yes", action="store_true", help="nothing brings it back")
    add_json(parser)
