"""A server on loopback that speaks OpenAI's chat API: a model that knows one trick, and its moods.

Asked by a customer it looks the order up, then refunds it, then answers.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-right"
Reply = tuple[int, str]


class ModelServer:
    """Serves until it is left; ``mood`` says how."""

    def __init__(self) -> None:
        self.mood = "well"
        self.asked: list[list[dict[str, Any]]] = []
        self.left = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> ModelServer:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.left.set()
        self._server.shutdown()
        self._server.server_close()

    def reply(self, path: str, key: str, body: dict[str, Any]) -> Reply:
        """Status and text."""
        self.asked.append(body.get("messages", []))
        if path != "/v1/chat/completions":
            return 404, error("no such page", "not_found")
        if key != f"Bearer {KEY}":
            return 401, error("Incorrect API key provided", "invalid_api_key")
        return MOODS[self.mood](self)


def well(server: ModelServer) -> Reply:
    """The next call of a tool, or the answer."""
    first, last = (server.asked[-1][place]["content"] for place in (0, -1))
    order = (re.findall(r"order (\w+)", first) or ["none"])[0]
    match re.match(r"(look_up|refund): (\d+)", last):
        case None:
            return 200, calls("look_up", json.dumps({"order": order}))
        case re.Match() as found if found[1] == "look_up":
            return 200, calls("refund", json.dumps({"order": order, "cents": int(found[2])}))
        case _:
            return 200, says(f"Dear customer, {last}.")


def silent(server: ModelServer) -> Reply:
    """No reply, as long as the test lasts."""
    server.left.wait()
    return 500, error("too late", "server_error")


def busy_twice(server: ModelServer) -> Reply:
    """Two time-outs, then it is well."""
    return silent(server) if len(server.asked) < 3 else well(server)


MOODS: dict[str, Callable[[ModelServer], Reply]] = {
    "well": well,
    "silent": silent,
    "busy twice": busy_twice,
    "no json": lambda _: (200, "<html>Welcome to the proxy</html>"),
    "bad arguments": lambda _: (200, calls("look_up", '{"order": "7"')),
    "unknown argument": lambda _: (200, calls("look_up", '{"number": "7"}')),
    "wrong type": lambda _: (200, calls("refund", '{"order": "7", "cents": {}}')),
    "rate limit": lambda _: (429, error("Rate limit reached", "rate_limit_exceeded")),
}


def message(content: str | None, **more: Any) -> str:
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": content, **more},
    }
    whole = {"id": "c-1", "object": "chat.completion", "created": 1, "model": "gpt-4o-mini"}
    return json.dumps({**whole, "choices": [choice]})


def says(text: str) -> str:
    return message(text)


def calls(name: str, arguments: str) -> str:
    call = {"id": "call-1", "type": "function"}
    return message(None, tool_calls=[{**call, "function": {"name": name, "arguments": arguments}}])


def error(text: str, code: str) -> str:
    return json.dumps({"error": {"message": text, "type": "error", "param": None, "code": code}})


def _handler(server: ModelServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, text = server.reply(self.path, self.headers.get("Authorization", ""), body)
            kind = "text/html" if text.startswith("<") else "application/json"
            try:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())
            except OSError:
                return  # nobody waits any more

        def log_message(self, format: str, *args: Any) -> None:
            """Tests print nothing."""

    return Handler
