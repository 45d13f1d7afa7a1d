"""Keys for those who test what is sealed."""

from __future__ import annotations

import os

import pytest

from outlive.journal.seal.keys import new_key


@pytest.fixture
def key() -> str:
    """A master key."""
    return new_key(os.urandom)


@pytest.fixture
def other_key() -> str:
    """Another one."""
    return new_key(os.urandom)
