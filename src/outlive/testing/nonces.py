"""Marks of what came out of a step: a text that is found again wherever it was sent."""

from __future__ import annotations

import re
from collections.abc import Callable

from outlive.journal.parts import whole

NONCE = re.compile(rb"nonce-[0-9a-f]{16}")


def fresh_nonce(entropy: Callable[[int], bytes]) -> str:
    """A text that no other step ever made, and that the auditor knows when it sees it."""
    return f"nonce-{entropy(8).hex()}"


def nonces_in(text: bytes | str) -> tuple[str, ...]:
    """Every nonce in a text, in order, each once."""
    raw = text.encode(errors="surrogatepass") if isinstance(text, str) else whole(text)
    return tuple(dict.fromkeys(found.decode() for found in NONCE.findall(raw)))
