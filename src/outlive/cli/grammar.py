"""An argument parser with one-line errors, suggestions and shell completion."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

from outlive.cli.output import print_note, print_text
from outlive.settings import did_you_mean

Do = Callable[[argparse.Namespace], int]

CODES = (
    "exit codes: 0 done, 1 the run failed or can't go on by itself, 2 usage, 3 store or data "
    "error, 4 the store has less than it acknowledged"
)

_Subparsers = argparse._SubParsersAction  # noqa: SLF001 - it has no other name
Commands: TypeAlias = "_Subparsers[Parser]"


class _Once(argparse._StoreAction):  # noqa: SLF001 - it has no other name
    """An option that may be given once."""

    is_given = False

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if self.is_given and option_string is not None:
            raise argparse.ArgumentError(self, "it is given twice; say it once")
        self.is_given = True
        super().__call__(parser, namespace, values, option_string)


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        for name in (None, "store"):
            self.register("action", name, _Once)

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse the arguments; refuse unknown ones and suggest what was probably meant."""
        asked, unknown = self.parse_known_args(words)
        if unknown:
            command = self.commands().get(asked.command, self)
            known = [*command.words(), *self.words()]
            hints = (did_you_mean(each.partition("=")[0], known, "--") for each in unknown)
            hint = next(filter(None, hints), "")
            command.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return asked

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices: Iterable[Any] | None = action.choices
        if choices is None or value in choices:
            return
        known = [str(each) for each in choices]
        hint = did_you_mean(str(value), known) or f" (choose from {', '.join(known)})"
        raise argparse.ArgumentError(action, f"invalid choice: {value!r}{hint}")

    def error(self, message: str) -> NoReturn:
        print_note(f"{self.prog}: {message}; see `{self.prog} --help`")
        raise SystemExit(2)

    def commands(self) -> dict[str, Parser]:
        """The commands of this parser."""
        found = [each.choices for each in self._actions if isinstance(each, _Subparsers)]
        return {name: parser for choices in found for name, parser in choices.items()}

    def words(self) -> list[str]:
        """Words that may be typed here: choices, and long options."""
        chosen = [str(word) for each in self._actions for word in each.choices or ()]
        options = [option for each in self._actions for option in each.option_strings]
        return chosen + [option for option in options if option.startswith("--")]


class ShowVersion(argparse.Action):
    """Print the release; the package is imported only then."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> NoReturn:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"outlive {version('outlive')}")
        except PackageNotFoundError:
            print("outlive, not installed: run from its source")
        raise SystemExit(0)


def everywhere() -> Parser:
    """Options that may stand before and after the command."""
    options = Parser(add_help=False, argument_default=argparse.SUPPRESS)
    options.add_argument(
        "--store",
        metavar="URL",
        help="the store (default: OUTLIVE_STORE, or a file in this folder)",
    )
    options.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return options


def add_command(commands: Commands, name: str, do: Do, about: str) -> Parser:
    """Add a command: its name, its function, its help."""
    parser = commands.add_parser(
        name,
        help=about[0].lower() + about[1:].partition(".")[0],
        description=about,
        epilog=CODES,
        parents=[everywhere()],
        allow_abbrev=False,
    )
    parser.set_defaults(do=do)
    return parser


def add_json(parser: Parser) -> None:
    """Add the option that every command with output has."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def positive(text: str) -> int:
    """Parse a count."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number


Words = Mapping[str, list[str]]

_BASH = """\
_outlive() {{
    local words
    case "${{COMP_WORDS[1]}}" in
{cases}
        *) words="{commands}" ;;
    esac
    COMPREPLY=($(compgen -o default -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _outlive outlive
"""


def completion(asked: argparse.Namespace, words: Words) -> int:
    """Print the script for one shell."""
    make = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    print_text(make[asked.shell](words).rstrip("\n"))
    return 0


def _bash(words: Words) -> str:
    cases = [f'        {name}) words="{" ".join(each)}" ;;' for name, each in words.items()]
    return _BASH.format(cases="\n".join(cases), commands=" ".join(words))


def _zsh(words: Words) -> str:
    cases = [f"        {name}) options=({' '.join(each)}) ;;" for name, each in words.items()]
    lines = [
        "#compdef outlive",
        "_outlive() {",
        "    local -a options",
        '    case "$words[2]" in',
        *cases,
        f"        *) options=({' '.join(words)}) ;;",
        "    esac",
        "    compadd -- $options",
        "    _files",
        "}",
        "compdef _outlive outlive",
    ]
    return "\n".join(lines)


def _fish(words: Words) -> str:
    lines = [f"complete -c outlive -n __fish_use_subcommand -f -a '{' '.join(words)}'"]
    for name, each in words.items():
        seen = f"-n '__fish_seen_subcommand_from {name}'"
        lines += [
            f"complete -c outlive {seen} -l {option[2:]}"
            if option.startswith("--")
            else f"complete -c outlive {seen} -a {option}"
            for option in each
        ]
    return "\n".join(lines)
