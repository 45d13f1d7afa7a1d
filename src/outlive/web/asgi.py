"""The lifespan of an ASGI application, wrapped and never replaced."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, TypeAlias

Message: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[Message]]
_Send: TypeAlias = Callable[[Message], Awaitable[None]]
#: An ASGI application.
ASGIApp: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]
_Context: TypeAlias = AbstractAsyncContextManager[Any]


def lifespan(asgi_app: ASGIApp, worker: _Context | Callable[[], _Context]) -> ASGIApp:
    """The same application, with a worker, or any other context, open as long as it serves.

    ``worker`` is an async context manager, or a function that makes one. It is entered before the
    application's own startup and left after its own shutdown; both still run.
    """

    async def wrapped(scope: Any, receive: _Receive, send: _Send) -> None:
        if scope["type"] != "lifespan":
            return await asgi_app(scope, receive, send)
        async with AsyncExitStack() as stack:
            return await _live(asgi_app, scope, (receive, send), (worker, stack))

    return wrapped


async def _live(
    asgi_app: ASGIApp,
    scope: Any,
    channel: tuple[_Receive, _Send],
    given: tuple[_Context | Callable[[], _Context], AsyncExitStack],
) -> None:
    (receive, send), (worker, stack) = channel, given
    ended: list[Message] = []

    async def receiving() -> Message:
        message = await receive()
        if message["type"] == "lifespan.startup":
            context = worker if isinstance(worker, AbstractAsyncContextManager) else worker()
            await stack.enter_async_context(context)
        return message

    async def sending(message: Message) -> None:
        if message["type"].startswith("lifespan.shutdown"):
            ended.append(message)  # told when the worker has ended, too
        else:
            await send(message)

    try:
        await asgi_app(scope, receiving, sending)
    except Exception as error:
        if not ended:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        raise
    await stack.aclose()
    for message in ended:
        await send(message)
