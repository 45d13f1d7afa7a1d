"""Flows from the modules that the command line names; never from a name found in a journal."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from inspect import Parameter
from types import ModuleType
from typing import Any

import msgspec

from outlive.engine.definitions import Flow
from outlive.errors import OutliveError, UsageError
from outlive.journal.codec.hints import parameter_hints
from outlive.loop import Loop
from outlive.model.queues import Queue
from outlive.worker.repertoire import each_once

AnyFlow = Flow[Any, Any]


def find_flow(named: str) -> AnyFlow:
    """The flow that ``MODULE:FLOW`` names."""
    module_name, colon, flow_name = named.partition(":")
    if not colon or not module_name or not flow_name:
        raise UsageError(f"{named!r} names no flow; write MODULE:FLOW, as in support:answer")
    module = _load(module_name)
    found = _flow_in(vars(module).get(flow_name))
    flows = flows_of([module])
    if found is None:
        found = next((flow for flow in flows if flow.name == flow_name), None)
    if found is None:
        have = ", ".join(sorted(flow.name for flow in flows)) or "none"
        raise UsageError(
            f"module {module_name} has no flow {flow_name!r} (it has: {have}); "
            "decorate the function with @outlive.flow, or write a subclass of outlive.loop.Loop"
        )
    return found


def find_flows(names: Iterable[str]) -> list[AnyFlow]:
    """All flows of these modules."""
    return flows_of([_load(name) for name in names])


def find_queues(names: Iterable[str]) -> list[Queue]:
    """All queues that these modules declare."""
    values = [value for name in names for value in vars(_load(name)).values()]
    return list({each.name: each for each in values if isinstance(each, Queue)}.values())


def flows_of(modules: Iterable[ModuleType]) -> list[AnyFlow]:
    """The flows among the modules' attributes, each once; several versions of one are fine.

    Raises:
        UsageError: two of them have the same name and version.
    """
    values = [value for module in modules for value in vars(module).values()]
    return each_once(flow for flow in map(_flow_in, values) if flow is not None)


def _flow_in(value: object) -> AnyFlow | None:
    """A flow, or the flow of a loop."""
    if isinstance(value, type) and issubclass(value, Loop):
        value = vars(value).get("flow")
    return value if isinstance(value, Flow) else None


def _load(name: str) -> ModuleType:
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if name.endswith(".py") or "/" in name:
        raise UsageError(f"{name!r} is a path; write the module's name: support, not support.py")
    try:
        return import_module(name)
    except OutliveError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and name.split(".")[0] == error.name.split(".")[0]:
            raise UsageError(
                f"there is no module {name!r} in this folder or on Python's path"
            ) from error
        raise UsageError(f"module {name} needs {error.name!r}, which is not installed") from error
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}"
        raise UsageError(f"module {name} can't be imported: {why}; --debug shows where") from error


_EXAMPLE = """--input '["Ada", 3]' or --input '{"name": "Ada"}'"""
#: Names that the verb which starts a run uses itself.
_RESERVED = {"id"}


def parse_json(text: str, what: str, example: str) -> Any:
    """Parse JSON; ``what`` names it in the error."""
    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogateescape"))
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise UsageError(
            f"{what} is not JSON: {str(error) or 'too deep'}; write {example}"
        ) from None


def parse_input(flow: AnyFlow, text: str | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments for a call of the flow.

    Raises:
        UsageError: it is not JSON, or the flow does not take it.
    """
    given = [] if text is None else parse_json(text, "--input", _EXAMPLE)
    if not isinstance(given, (list, dict)):
        raise UsageError(f"--input is a list or an object: {_EXAMPLE}")
    args, kwargs = (given, {}) if isinstance(given, list) else ([], given)
    signature = inspect.signature(flow.fn)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise UsageError(f"flow {flow.name}{signature}: {error}; {_EXAMPLE}") from None
    hints = parameter_hints(flow.fn)
    for name, value in bound.arguments.items():
        if name in hints:
            convert = _CONVERT.get(signature.parameters[name].kind, _convert)
            bound.arguments[name] = convert(name, value, hints[name])
    bound.apply_defaults()
    if taken := _RESERVED.intersection(bound.kwargs):
        raise UsageError(
            f"flow {flow.name} has a keyword-only parameter {min(taken)!r}, which the command line "
            "can't give; let it be given by position"
        )
    return bound.args, bound.kwargs


def _convert(name: str, value: Any, hint: Any) -> Any:
    try:
        return msgspec.convert(value, hint, dec_hook=_by_its_own_rules)
    except msgspec.ValidationError as error:
        raise UsageError(f"--input: argument {name!r}: {error}") from None
    except TypeError:
        return value  # a hint that says nothing about JSON


def _by_its_own_rules(cls: Any, value: Any) -> Any:
    """An object of a class that msgspec does not know: a pydantic model."""
    validate = getattr(cls, "model_validate", None)
    if validate is None:
        raise ValueError(f"JSON can't say a {cls.__qualname__}")
    return validate(value)


def _convert_each(name: str, values: tuple[Any, ...], hint: Any) -> tuple[Any, ...]:
    return tuple(_convert(name, value, hint) for value in values)


def _convert_named(name: str, values: Mapping[str, Any], hint: Any) -> dict[str, Any]:
    return {key: _convert(key, value, hint) for key, value in values.items()}


_CONVERT: Mapping[Any, Callable[[str, Any, Any], Any]] = {
    Parameter.VAR_POSITIONAL: _convert_each,
    Parameter.VAR_KEYWORD: _convert_named,
}
