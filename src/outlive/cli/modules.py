"""Flows from the modules that the command line names; never from a name found in a journal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from types import ModuleType
from typing import Any

from outlive.engine.definitions import Flow
from outlive.errors import OutliveError, UsageError
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
    """What can be driven: a flow, or that of a loop."""
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
