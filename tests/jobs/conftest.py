"""The payment service and the real masumi package for the tests of jobs."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlive.testing import FakePaymentService

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the package uses old forms of pydantic and FastAPI
    import masumi

for _name in ("payment", "server", "job_manager", "validation"):
    logging.getLogger(f"masumi.{_name}").setLevel(logging.CRITICAL)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[FakePaymentService]:
    with FakePaymentService(tmp_path / "ledger.db") as service:
        yield service


@pytest.fixture
def config(service: FakePaymentService) -> masumi.Config:
    return masumi.Config(service.url, service.api_key)
