"""Runs that meet secrets wherever a run can meet any."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import outlive

#: Each in a place of its own; all of them match the pattern.
PLANTED = [f"sk-live-{number:02}-{'xyzzy' * 3}" for number in range(23)]
(
    FLOW_ARG, STEP_ARG, STEP_OUT, EFFECT_ARG, EFFECT_OUT, NESTED, TAG, PIN, SIGNAL, ANSWER,
    QUESTION, ERROR, STEP_ERROR, CHILD_ARG, CHILD_OUT, CARRIED, LARGE, REQUEST, REPLY, OUTCOME,
    CHILD_TAG, KEYS, BOOKED,
) = PLANTED  # fmt: skip
#: By name: nothing else tells that it is one.
PASSWORD, PIN_CODE, ELSEWHERE = "correct horse", "4711", "battery staple"
BOOKING = "open sesame"
NAMED = [PASSWORD, PIN_CODE, ELSEWHERE, BOOKING]
PATTERN = r"sk-live-\d\d-(?:xyzzy)+"

#: What bodies were given.
given: list[object] = []


@dataclass
class Letter:
    """A value of a user's own class."""

    to: str
    body: bytes
    more: dict[str, list[str]] = field(default_factory=dict)


@outlive.step
async def think(question: str) -> str:
    given.append(question)
    return f"as to {STEP_OUT}: yes"


@outlive.step(raises=(ValueError,))
async def stumble() -> None:
    raise ValueError(f"at {STEP_ERROR}", [STEP_ERROR])


@outlive.effect(doubt="retry")
async def pay(note: str) -> Letter:
    given.append(note)
    return Letter(f"to {EFFECT_OUT}", EFFECT_OUT.encode())


@outlive.step
async def swallow(letter: Letter, many: list[dict[str, str]]) -> int:
    given.append(letter)
    given.append(many)
    return len(many)


@outlive.step(redact=("password",))
async def sign_in(user: str, password: str, **more: str) -> str:
    given.append((password, more))
    return f"{user} signed in with {password}"


@outlive.step(redact=("password",), raises=(PermissionError,))
async def refuse(user: str, password: str) -> None:
    raise PermissionError(f"{user}: {password} is wrong")


@outlive.flow
async def child(word: str) -> str:
    return CHILD_OUT


@outlive.flow
async def busy(word: str, chapter: int = 0) -> str:
    if chapter == 0:
        await think(STEP_ARG)
        await pay(EFFECT_ARG)
        letter = Letter(NESTED, LARGE.encode() * 100, {KEYS: [NESTED]})
        await swallow(letter, [{"role": "user", "content": LARGE + "x" * 600}] * 10)
        try:
            await stumble()
        except ValueError as error:
            await think(str(error))
        await outlive.call(child.options(tags={"of": CHILD_TAG}), CHILD_ARG)
        await outlive.wait_signal("word", type=str)
        await outlive.ask(f"Is it {QUESTION}?", type=str)
        async for request in outlive.requests("message", type=str):
            await request.reply(REPLY)
            break
        await sign_in("ann", PASSWORD, pin=PIN_CODE)
        try:
            await refuse("ann", ELSEWHERE)
        except PermissionError as error:
            await think(str(error))
        await outlive.carry(CARRIED, 1)
    return OUTCOME


@outlive.flow
async def failing() -> None:
    raise RuntimeError(ERROR)


@outlive.step(transaction=True, redact=("password",))
def book(connection: Any, password: str) -> str:
    given.append(password)
    return f"booked with {password}, {BOOKED}"


@outlive.flow
async def booking() -> str:
    return await book(BOOKING)  # type: ignore[misc, no-any-return]  # plain steps are awaited
