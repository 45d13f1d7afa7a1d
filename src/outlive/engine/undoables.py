"""Effects that can be undone, by name: for what an earlier chapter of a run did."""

from __future__ import annotations

from outlive.engine.definitions import Definition
from outlive.errors import RunError


class Undoables:
    """Effects that can be undone, by name: a chapter's successor has only their names."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Definition]] = {}

    def add(self, definition: Definition) -> None:
        """An effect was defined; a later one of the same place replaces it."""
        self._known.setdefault(definition.name, {})[place_of(definition)] = definition

    def find(self, name: str, where: str) -> Definition:
        """The effect of that name: the one at that place, or the only one.

        Raises:
            RunError: there is none in this process, or it can't be told which.
        """
        known = self._known.get(name, {})
        found = known.get(where) or (next(iter(known.values())) if len(known) == 1 else None)
        if found is None:
            has = "several, " + ", ".join(sorted(known)) if known else "none of that name"
            raise RunError(
                f"effect {where} ({name!r}) of an earlier chapter has to be undone; this process "
                f"has {has}; import the module that defines it, or give it its old name="
            )
        return found


def place_of(definition: Definition) -> str:
    """Where in the program an effect is defined."""
    fn = definition.fn
    return f"{fn.__module__}.{getattr(fn, '__qualname__', type(fn).__qualname__)}"


undoables = Undoables()
