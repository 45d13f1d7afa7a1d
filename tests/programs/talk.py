"""A chat agent: one run per person, which remembers what was said.

outlive worker talk
python talk.py ada "hello"          # prints the reply
outlive signal talk-ada mood grim   # how it shall reply from now on
"""

import asyncio
import sys

import outlive

MODEL_SECONDS = 0.5
CHAPTER = 4


@outlive.step(retry=outlive.Retry(attempts=2, delay="50ms"), timeout="10s")
async def think(said: list[str], mood: str) -> str:
    print("thinking about", said[-1], flush=True)
    await asyncio.sleep(MODEL_SECONDS)
    return f"{mood}: {len(said)} messages, the first was {said[0]}"


@outlive.flow
async def talk(said: list[str], mood: str) -> int:
    async def listen() -> None:
        nonlocal mood
        mood = await outlive.wait_signal("mood", type=str)

    listener = asyncio.create_task(listen())
    async for message in outlive.requests("message", type=str, idle="90d"):
        said.append(message.value)
        await message.reply(await think(said, mood))
        if message.value == "bye":
            break
        if len(said) % CHAPTER == 0:
            await outlive.carry(said, mood)
    listener.cancel()
    return len(said)


async def say(person: str, text: str) -> str:
    nothing: list[str] = []
    async with outlive.open(drive=False) as app:
        handle = await app.ensure(talk, nothing, "friendly", id=f"talk-{person}")
        return str(await handle.request("message", text, id=f"{person}: {text}", timeout="8s"))


if __name__ == "__main__":
    print(asyncio.run(say(*sys.argv[1:])))
