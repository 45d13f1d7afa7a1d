"""A fake payment service: a real HTTP server, as strict as the real one, that fails on demand.

    with FakePaymentService() as service:
        ...                                 # an agent that uses service.url and service.api_key
        service.pay(payment_id)             # the buyer locks the funds
        service.fault("submit", "lost")     # the next submission happens, its answer is lost
        service.advance("23h")              # the chain's clock

With ``process=True`` it is a process of its own, which ``kill`` ends at once and ``restart`` starts
again with the same ledger at the same address.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias
from urllib.parse import parse_qsl, urlsplit
from urllib.request import urlopen
from weakref import WeakSet

from outlive.model.retry import Duration, parse_duration
from outlive.testing.payment_ledger import PaymentLedger, ServiceRefusal

Route: TypeAlias = Literal[
    "*", "create", "resolve", "submit", "refund", "recover", "list", "diff", "registry", "purchase"
]
#: What may go wrong. Before anything happens: "error" (500), "conflict" (409), "drop" (the
#: connection breaks). After it happened: "lost" (the connection breaks), "lost_404", "lost_409"
#: and "lost_500" (the answer is wrong). "delay": the answer is late.
FaultKind: TypeAlias = Literal[
    "error", "conflict", "drop", "lost", "lost_404", "lost_409", "lost_500", "delay"
]
AGENT = "7e8bdaf2b2b919a3a4b94002cafb50086c0c845fe535d07a77ab7f7726f6d6b5" + "ab" * 28
SELLER = "cd" * 28
_PREFIX = "/api/v1"
_BEFORE: dict[str, int] = {"error": 500, "conflict": 409}
_AFTER: dict[str, int] = {"lost_404": 404, "lost_409": 409, "lost_500": 500}
_ANY: tuple[FaultKind, ...] = ("error", "conflict", "drop", "lost", "lost_404", "lost_409", "delay")


class FakePaymentService:
    """The payment service on a loopback address, with a durable ledger."""

    agent_identifier = AGENT
    seller_vkey = SELLER

    def __init__(
        self,
        ledger: str | os.PathLike[str] | None = None,
        *,
        port: int = 0,
        api_key: str = "fake-key",
        process: bool = False,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory() if ledger is None else None
        path = Path(ledger or Path(self._folder.name if self._folder else "", "ledger.db"))
        self.ledger, self.port, self.api_key = PaymentLedger(path), port, api_key
        self._is_process = process
        self._server: _Server | None = None
        self._child: subprocess.Popen[bytes] | None = None
        if self.ledger.setting("agents") is None:
            self.register(AGENT)

    @property
    def url(self) -> str:
        """What an agent calls PAYMENT_SERVICE_URL."""
        return f"http://127.0.0.1:{self.port}{_PREFIX}"

    # the server

    def start(self) -> Self:
        """Serve, in a thread or in a process of its own."""
        if self._is_process:
            self._spawn()
        else:
            self._server = _Server(self.port, self.ledger, self.api_key)
            self.port = self._server.server_address[1]
            self._server.begin()
        return self

    def stop(self) -> None:
        """Stop serving; the ledger stays."""
        if self._server is not None:
            self._server.end()
            self._server = None
        if self._child is not None:
            self.kill()

    def kill(self) -> None:
        """End the process at once, as a crash does."""
        assert self._child is not None, "it is not a process of its own"
        self._child.send_signal(signal.SIGKILL)
        self._child.wait()
        self._child = None

    def restart(self) -> None:
        """Start again with the same ledger, at the same address."""
        self.stop()
        self.start()

    def _spawn(self) -> None:
        if not self.port:
            self.port = free_port()
        command = [sys.executable, "-m", "outlive.testing.payment"]
        command += [str(self.ledger.path), str(self.port), self.api_key]
        self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        for _ in range(600):
            try:
                with urlopen(f"{self.url}/health", timeout=10):
                    return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("the fake payment service did not start within 30 seconds")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *raised: object) -> None:
        self.stop()
        if self._folder is not None:
            self._folder.cleanup()

    # the buyer, the chain, time

    def register(
        self,
        agent: str,
        *,
        pricing: Literal["Fixed", "Free", "Dynamic"] = "Fixed",
        amount: str = "1000000",
    ) -> None:
        """Enter an agent into the registry, with its price."""
        agents = dict(self.ledger.setting("agents", {}))
        agents[agent] = {"pricing": pricing, "amount": amount, "vkey": SELLER}
        self.ledger.set("agents", agents)

    def pay(self, payment_id: str) -> None:
        """The buyer locks the funds."""
        self.ledger.pay(payment_id)

    def force(self, payment_id: str, **fields: Any) -> None:
        """Put a payment into any state: ``state``, ``action``, ``error``, ``hash``, ``queued``."""
        self.ledger.force(payment_id, **fields)

    def roll_back(self, payment_id: str) -> None:
        """A confirmed submission vanishes from the chain."""
        self.ledger.roll_back(payment_id)

    def request_refund(self, payment_id: str) -> None:
        """The buyer wants the money back."""
        self.ledger.request_refund({"network": "Preprod", "blockchainIdentifier": payment_id})

    def advance(self, duration: Duration) -> None:
        """Move the chain's clock; what is due happens."""
        self.ledger.advance(round(parse_duration(duration) * 1000))

    def step(self) -> None:
        """One step of the service's workers and of the chain, for every payment."""
        self.ledger.step()

    def confirm_after(self, duration: Duration | None) -> None:
        """Let a step happen by itself, so long after the one before; None: only by ``step``."""
        ms = None if duration is None else round(parse_duration(duration) * 1000)
        self.ledger.set("confirm_ms", ms or 0)
        self.ledger.set("is_alive", duration is not None)

    # faults

    def fault(self, route: Route, kind: FaultKind, *, times: int = 1, seconds: float = 0.2) -> None:
        """Let the next ``times`` requests of a route go wrong; see ``FaultKind``."""
        self.ledger.add_fault(route, kind, seconds, times)

    def fault_at_random(self, share: float) -> None:
        """Let this share of all requests go wrong, in any manner; 0: none."""
        self.ledger.set("share", share)

    # what happened

    def payments(self) -> list[dict[str, Any]]:
        """All payments as the service shows them, oldest first."""
        return self.ledger.payments()

    def payment(self, payment_id: str) -> dict[str, Any]:
        """One payment as the service shows it."""
        return self.ledger.resolve({"network": "Preprod", "blockchainIdentifier": payment_id})

    def submissions(self, payment_id: str | None = None) -> list[dict[str, Any]]:
        """The submissions that were accepted."""
        return self.ledger.entries("submission", payment_id)

    def calls(self, route: Route | None = None) -> int:
        """The number of requests that came in."""
        entries = self.ledger.entries("call")
        return sum(route in (None, entry["route"]) for entry in entries)


def free_port() -> int:
    """A port of the loopback address that nobody uses."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, port: int, ledger: PaymentLedger, api_key: str) -> None:
        self.ledger, self.api_key = ledger, api_key
        self._stopped = threading.Event()
        self._clients = WeakSet[socket.socket]()
        super().__init__(("127.0.0.1", port), _Handler)

    def begin(self) -> None:
        for work in (self._serve, self._live):
            threading.Thread(target=work, daemon=True).start()

    def _serve(self) -> None:
        self.serve_forever(poll_interval=0.02)

    def _live(self) -> None:
        while not self._stopped.wait(0.02):
            if self.ledger.setting("is_alive", False):
                self.ledger.step()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._clients.add(request)
        super().process_request(request, client_address)

    def end(self) -> None:
        self._stopped.set()
        self.shutdown()
        self.server_close()
        for client in list(self._clients):  # connections that are kept alive end, too
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is nothing to tell."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self._serve(parts.path, dict(parse_qsl(parts.query)))

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        self._serve(urlsplit(self.path).path, body)

    def _serve(self, path: str, body: Any) -> None:
        path = path.removeprefix(_PREFIX)
        if path == "/health":
            return self._answer(200, {"type": "masumi-payment", "version": "fake"})
        route, verb = self._verb(path)
        try:
            if verb is None:
                raise ServiceRefusal(404, f"no such route: {path}")
            if self.headers.get("token") != self.server.api_key:
                raise ServiceRefusal(401, "Unauthorized, invalid authentication token")
            if not isinstance(body, dict):
                raise ServiceRefusal(400, "expected a JSON object")
            self.server.ledger.note_call(route)
            self._perform(*self._fault(route), lambda: verb(body))
        except ServiceRefusal as refusal:
            error = {"message": refusal.message}
            self._answer(refusal.status, {"status": "error", "error": error, **refusal.extra})

    def _perform(self, kind: str, seconds: float, verb: Callable[[], Any]) -> None:
        if kind in _BEFORE:
            raise ServiceRefusal(_BEFORE[kind], f"fault: {kind}")
        if kind == "drop":
            return self._hang_up()
        found = verb()
        if kind == "delay":
            time.sleep(seconds)
        if kind == "lost":
            return self._hang_up()
        if kind in _AFTER:
            raise ServiceRefusal(_AFTER[kind], f"fault: {kind}")
        return self._answer(200, {"status": "success", "data": found})

    def _verb(self, path: str) -> tuple[str, Callable[[Mapping[str, Any]], Any] | None]:
        ledger = self.server.ledger
        routes: dict[tuple[str, str], tuple[str, Callable[[Mapping[str, Any]], Any]]] = {
            ("POST", "/payment"): ("create", ledger.create),
            ("POST", "/payment/resolve-blockchain-identifier"): ("resolve", ledger.resolve),
            ("POST", "/payment/submit-result"): ("submit", ledger.submit),
            ("POST", "/payment/authorize-refund"): ("refund", ledger.authorize_refund),
            ("POST", "/payment/error-state-recovery"): ("recover", ledger.recover),
            ("GET", "/payment"): ("list", lambda query: ledger.page(query, changed=False)),
            ("GET", "/payment/diff"): ("diff", lambda query: ledger.page(query, changed=True)),
            ("GET", "/registry/agent-identifier"): ("registry", ledger.agent),
            ("POST", "/purchase"): ("purchase", ledger.purchase),
            ("POST", "/purchase/request-refund"): ("purchase", ledger.request_refund),
            ("POST", "/purchase/cancel-refund-request"): ("purchase", ledger.cancel_refund),
        }
        return routes.get((self.command, path.rstrip("/")), ("", None))

    def _fault(self, route: str) -> tuple[str, float]:
        ledger = self.server.ledger
        fault = ledger.take_fault(route)
        if fault is not None:
            return fault
        if random.random() < float(ledger.setting("share", 0)):
            return random.choice(_ANY), 0.05
        return "", 0.0

    def _answer(self, status: int, value: object) -> None:
        raw = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _hang_up(self) -> None:
        """Break the connection so that the client gets no answer."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()


def main() -> None:
    """Serve until killed: LEDGER PORT API_KEY."""
    ledger, port, api_key = sys.argv[1:]
    _Server(int(port), PaymentLedger(Path(ledger)), api_key).begin()
    threading.Event().wait()


if __name__ == "__main__":
    main()
