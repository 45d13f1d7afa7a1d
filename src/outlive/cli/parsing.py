"""An argument parser that speaks in one line, and knows what may be typed."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn, TypeAlias

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
