"""``outlive completion``: a script that lets the shell complete commands and their options.

It is made from the parser itself and holds nothing but names: no run of a store is looked up.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from outlive.cli.output import print_text

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
