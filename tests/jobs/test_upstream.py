"""The masumi package's own tests, from its source distribution, with our storage in its place."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

NAME = "masumi-1.2.0.tar.gz"
SHA256 = "b9ac229ef927fc74a6d061f6ad5b2ef9ef17dddf856d1fe018f3de354fd093b2"
CONFTEST = """
import os, tempfile
import masumi, masumi.job_manager, masumi.server
from outlive.jobs.masumi import MasumiJobStorage

class Swapped(MasumiJobStorage):
    made = 0
    def __init__(self):
        Swapped.made += 1
        super().__init__("sqlite:///" + os.path.join(tempfile.mkdtemp(), "jobs.db"))

for module in (masumi, masumi.job_manager, masumi.server):
    module.InMemoryJobStorage = Swapped

def pytest_sessionfinish():
    print("\\nstorages made:", Swapped.made)
"""


@pytest.mark.item(38)
def test_the_package_passes_its_own_tests(tmp_path: Path) -> None:
    """All fifteen tests of masumi 1.2.0 pass with MasumiJobStorage instead of its own."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += [
        "--no-binary",
        ":all:",
        "masumi==1.2.0",
        "-d",
        str(tmp_path),
    ]
    subprocess.run(command, check=True, env={**os.environ, "PIP_NO_INPUT": "1"})
    raw = (tmp_path / NAME).read_bytes()
    assert SHA256 == hashlib.sha256(raw).hexdigest()
    with tarfile.open(tmp_path / NAME) as archive:
        member = archive.extractfile("masumi-1.2.0/masumi/tests/test_endpoints.py")
        assert member is not None
        (tmp_path / "test_endpoints.py").write_bytes(member.read())
    (tmp_path / "conftest.py").write_text(CONFTEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    command += ["-c", os.devnull, "-o", "asyncio_mode=auto", "--rootdir", str(tmp_path), "-s"]
    ended = subprocess.run(
        [*command, str(tmp_path / "test_endpoints.py")],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip

    assert re.search(r"\b15 passed", ended.stdout), ended.stdout[-3000:]
    assert re.search(r"storages made: [1-9]", ended.stdout), ended.stdout[-3000:]
