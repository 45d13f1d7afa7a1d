"""Checkpoints against a model of them: whatever is done, by whomever, in whatever order."""

from __future__ import annotations

import copy
import random
from typing import Any

from outlive.checkpoints import DurableRunner, SnapshotStore
from outlive.errors import RunIdTaken, RunNotFound
from outlive.stores.memory import MemoryStore
from tests.conftest import Figure

SEED = 20_261_116
RUNS = ("a", "b", "c")
STEPS = tuple(f"s{number}" for number in range(6))


class Model:
    """Lines of (step, state), in plain Python."""

    def __init__(self) -> None:
        self.lines: dict[str, list[tuple[str, Any]]] = {}
        self.saved: dict[str, int] = {}

    def current(self, run: str) -> list[tuple[str, Any]]:
        newest: dict[str, Any] = {}
        for step, state in self.lines.get(run, []):
            newest.pop(step, None)
            newest[step] = state
        return list(newest.items())

    def save(self, run: str, step: str, state: Any) -> None:
        self.lines.setdefault(run, []).append((step, copy.deepcopy(state)))
        self.saved[run] = self.saved.get(run, 0) + 1

    def upto(self, run: str, step: str) -> list[tuple[str, Any]]:
        line = self.lines[run]
        return line[: max(at for at, (name, _) in enumerate(line) if name == step) + 1]


def changed(rng: random.Random, state: dict[str, Any]) -> None:
    """A user changes its one dict in place."""
    texts = state.setdefault("texts", [])
    match rng.randrange(4):
        case 0 if texts:
            texts.pop(rng.randrange(len(texts)))
        case 1:
            state[f"key {rng.randrange(9)}"] = {"n": rng.random(), "deep": (rng.random(), b"x")}
        case _:
            texts.append(f"{rng.random()}" * rng.choice((1, 40, 90)))


async def act(rng: random.Random, runner: DurableRunner, model: Model, state: Any) -> str:
    """One thing that somebody does."""
    run, step = rng.choice(RUNS), rng.choice(STEPS)
    has = {name for name, _ in model.lines.get(run, [])}
    deed = rng.choice(("save",) * 8 + ("resume", "back", "fork", "clear"))
    if deed == "save" or not has:
        changed(rng, state)
        await runner.checkpoint(run, step, state)
        model.save(run, step, state)
    elif deed == "resume":
        wanted = dict(model.current(run)).get(step)
        assert wanted == await runner.resume(run, step)
        assert model.lines[run][-1][1] == await runner.resume(run)
    elif deed == "back":
        to = rng.choice(sorted(has))
        assert dict(model.current(run))[to] == await runner.rollback(run, to)
        model.lines[run] = model.upto(run, to)
    elif deed == "clear" and rng.random() < 0.4:
        assert len(model.current(run)) == await runner.cleanup(run)
        del model.lines[run], model.saved[run]
    elif deed == "fork":
        await fork(rng, runner, model, run, rng.choice(sorted(has)))
    return deed


async def fork(
    rng: random.Random, runner: DurableRunner, model: Model, run: str, step: str
) -> None:
    """Into a run that is there, or into one that is not."""
    target = rng.choice(RUNS)
    if model.lines.get(target):
        try:
            await runner.fork(run, target, at=step)
        except (RunIdTaken, RunNotFound):
            return
        return  # asked for again, it is as it was
    await runner.fork(run, target, at=step)
    part = Model()
    part.lines["x"] = model.upto(run, step)
    model.lines[target] = part.current("x")
    model.saved[target] = len(model.lines[target])


async def test_whatever_is_done_is_what_is_found(full: bool, figure: Figure) -> None:
    """Two processes take turns; each finds what both did, exactly."""
    seeds, deeds = (60 if full else 6), 150
    for seed in range(SEED, SEED + seeds):
        rng, memory, model = random.Random(seed), MemoryStore(), Model()
        runners = [DurableRunner(SnapshotStore(memory)) for _ in range(2)]
        state: dict[str, Any] = {}
        for number in range(deeds):
            await act(rng, rng.choice(runners), model, state)
            if number % 10 == 9:
                for run in RUNS:
                    found = await rng.choice(runners).list_checkpoints(run)
                    told = [(each.step_id, each.state) for each in found]
                    assert model.current(run) == told, (seed, number, run)
                    history = await rng.choice(runners).history(run)
                    assert model.saved.get(run, 0) == len(history), (seed, number, run)
        for each in runners:
            await each.store.close()
    figure("checkpoints: deeds compared with a model", seeds * deeds)
