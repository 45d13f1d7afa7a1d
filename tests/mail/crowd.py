"""A crowd that posts to runs, and workers that drive them: each a process of its own.

python -m tests.mail.crowd work  URL
python -m tests.mail.crowd post  URL NUMBER OF RUNS WORDS SEED
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from random import Random

import outlive
from outlive.app.app import App
from outlive.app.open import open_app
from outlive.errors import AnswerRefused, QuestionNotOpen, RunEnded, StoreUnavailable
from outlive.settings import Settings

#: Every wait leaves memory.
SETTINGS = Settings(lease_seconds=1.0, poll_seconds=0.05, idle_seconds=0.0)
QUESTIONS = 3
POSTERS = 4
#: How likely somebody says a word that is another's to say.
TWICE = 0.15
#: One run in so many is told to stop.
CANCELLED_ONE_IN = 10


def open_crowded(url: str) -> App:
    """An app as every process of this crowd has it."""
    return open_app(url, settings=SETTINGS)


@outlive.step
async def consider(word: str) -> str:
    """A step in between."""
    return word


async def interview() -> list[int]:
    """Ask people, one question after the other."""
    return [await outlive.ask(f"Question {number}?", type=int) for number in range(QUESTIONS)]


@outlive.flow
async def listening(words: int) -> dict[str, list[str]]:
    """Hear so many words while asking questions."""
    asking = asyncio.create_task(interview())
    heard = []
    for _ in range(words):
        heard.append(await consider(await outlive.wait_signal("word", type=str)))
    return {"heard": heard, "answers": [str(each) for each in await asking]}


def name_of(run: int) -> str:
    """The id of a run."""
    return f"run-{run}"


def is_cancelled(run: int) -> bool:
    """This one is told to stop."""
    return run % CANCELLED_ONE_IN == CANCELLED_ONE_IN - 1


class Poster:
    """One of the crowd: says its own words, and some of the others', under the same ids."""

    def __init__(self, app: App, runs: int, words: int, number: int) -> None:
        self._app, self._runs, self._words, self._number = app, runs, words, number
        self.told: Counter[str] = Counter()

    async def post_all(self, rng: Random) -> None:
        """Everything in an order of its own, with looks at the questions in between."""
        words = [
            (run, word)
            for run in range(self._runs)
            for word in range(self._words)
            if word % POSTERS == self._number or rng.random() < TWICE
        ]
        rng.shuffle(words)
        for number, (run, word) in enumerate(words):
            await self._say(run, word)
            if number % 5 == 0:
                await self._answer(rng.randrange(self._runs))
        while any([await self._answer(run) for run in range(self._runs)]):
            await asyncio.sleep(0.02)

    async def _say(self, run: int, word: int) -> None:
        handle = await self._app.get(name_of(run))
        try:
            if is_cancelled(run) and word == self._words // 2:
                await handle.cancel(by="crowd")
                self.told["cancelled"] += 1
                return
            posted = await handle.signal("word", f"word {word}", id=f"word-{word}")
            self.told["posted" if posted else "already"] += 1
        except RunEnded:
            self.told["ended"] += 1

    async def _answer(self, run: int) -> bool:
        """Answer what a run asks; False once it never will ask again."""
        handle = await self._app.get(name_of(run))
        for question in await handle.questions():
            try:
                await handle.answer(len(question.text), question.id)
                self.told["answered"] += 1
            except (QuestionNotOpen, AnswerRefused, RunEnded):
                self.told["too late"] += 1
        return await handle.status() not in ("completed", "cancelled", "failed")


async def post(url: str, runs: int, words: int, number: int, seed: int) -> None:
    """Post everything, and tell what was answered."""
    async with open_crowded(url) as app:
        poster = Poster(app, runs, words, number)
        await poster.post_all(Random(seed))
    print(json.dumps(poster.told))


async def work(url: str) -> None:
    """Drive whatever there is, until killed."""
    async with open_crowded(url) as app, app.worker([listening], concurrency=100):
        await asyncio.Event().wait()


def main(what: str, url: str, *numbers: str) -> None:
    """One process of the crowd."""
    try:
        if what == "work":
            asyncio.run(work(url))
        else:
            runs, words, number, seed = (int(each) for each in numbers)
            asyncio.run(post(url, runs, words, number, seed))
    except StoreUnavailable as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
