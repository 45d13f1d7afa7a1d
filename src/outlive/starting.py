"""When the same id means the same run."""

from __future__ import annotations

from typing import Any

from outlive.engine.definitions import Flow
from outlive.errors import RunIdTaken, WrongVersion
from outlive.model.events import RunStarted


def check_same_run(flow: Flow[Any, Any], run_id: str, asked: RunStarted, there: RunStarted) -> None:
    """The run that has this id is the one that was asked for, or the id is taken."""
    if there.flow != asked.flow:
        raise RunIdTaken(run_id, f"it is a run of flow {there.flow!r}, not {asked.flow!r}")
    if there.version not in flow.versions:
        accepted = ", ".join(sorted(flow.versions))
        raise WrongVersion(
            f"run {run_id} was started with version {there.version!r} of flow {there.flow!r}; "
            f"this code drives {accepted}: add accepts=({there.version!r},) if it can drive it"
        )
    if there.digest != asked.digest and not flow.args_codec.same(there.args, asked.args):
        raise RunIdTaken(run_id, f"that run of flow {there.flow!r} has other arguments")
