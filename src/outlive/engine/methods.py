"""What is decorated is no method: nothing gives it the object that it is called on."""

from __future__ import annotations

from typing import Any, ClassVar

from outlive.engine.binding import signature_of
from outlive.errors import DefinitionRefused


class NoMethod:
    """A step, effect or flow: called on an object, its first argument would be taken for it."""

    #: What it is made with, below ``outlive``.
    _decorator: ClassVar[str] = "step"

    def __set_name__(self, owner: type, name: str) -> None:
        decorated: Any = self
        fn = getattr(decorated, "definition", decorated).fn
        is_of_class = getattr(fn, "__qualname__", "").rpartition(".")[0] == owner.__qualname__
        if is_of_class and next(iter(signature_of(fn).parameters), "") in ("self", "cls"):
            raise DefinitionRefused(
                f"{owner.__qualname__}.{name} is a method, and can't be a {self._decorator} so: it "
                f"would not be given its object; decorate the bound method, "
                f"outlive.{self._decorator}(obj.{name}), or a staticmethod"
            )
