"""Agents in processes of their own, and their buyers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from outlive.testing import FakePaymentService
from outlive.testing.payment import free_port

PATIENCE_SECONDS = 240.0


class AgentProcess:
    """One agent, which may be killed and started again at the same address."""

    def __init__(
        self,
        store: str,
        service: FakePaymentService,
        folder: Path,
        program: str = "agent.py",
        *more: str,
    ) -> None:
        self.port = free_port()
        self._program, self._more = Path(__file__).with_name(program), more
        self._said = (store, service.url, service.api_key, service.agent_identifier)
        self._folder = folder
        self.web = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, str(self._program), *self._said]
        command += [str(self.port), str(self._folder), *self._more]
        with Path(self._folder, "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        if self._process is not None and self.is_alive:
            os.kill(self._process.pid, number)
            self._process.wait()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def close(self) -> None:
        self.kill()
        self.web.close()

    def call(self, method: str, path: str, **said: Any) -> httpx.Response:
        """Ask until somebody answers; an agent that died is started again."""
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            if not self.is_alive:
                self.start()
            try:
                answer = self.web.request(method, path, **said)
                if answer.status_code != 503:
                    return answer
            except httpx.HTTPError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"{path}: no answer; {self.log()[-3000:]}")

    def log(self) -> str:
        return Path(self._folder, "log").read_text()

    def order(self, number: int, **input_data: Any) -> dict[str, Any]:
        body = {"identifier_from_purchaser": f"{number:016x}", "input_data": input_data}
        answer = self.call("POST", "/start_job", json=body)
        assert 200 == answer.status_code, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def status(self, job_id: str) -> dict[str, Any]:
        answer = self.call("GET", "/status", params={"job_id": job_id})
        assert 200 == answer.status_code, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def wait(self, job_id: str, *wanted: str) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            found = self.status(job_id)
            if found["status"] in wanted:
                return found
            assert found["status"] not in ("failed", "completed"), found
            time.sleep(0.05)
        raise AssertionError(f"{job_id} is {found}; {self.log()[-3000:]}")
