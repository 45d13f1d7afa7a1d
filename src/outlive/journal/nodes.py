"""Nodes: content-addressed bytes of a family, compressed where that pays.

A node's first byte says how the rest is kept: 0 as it is, 1 by zstd. Its address is the hash of
what it holds, so that the same content has one address however it was kept.
"""

from __future__ import annotations

import importlib
import threading
from functools import cache
from typing import Any, Final

from outlive.errors import StoreUnavailable
from outlive.journal.parts import address_of
from outlive.store import Node

_PLAIN, _ZSTD = b"\0", b"\1"
#: Compressed from here on, if no more than this share is left.
_COMPRESSED_FROM: Final = 512
_SHARE_MAX: Final = 15 / 16
#: The next ones take half as long again, and save nothing on texts of some kilobytes.
_LEVEL: Final = 1
#: What a node may hold: that of the largest value, and what msgpack adds.
PAYLOAD_BYTES_MAX: Final = 64 * 1024 * 1024 + 64

#: Each thread's compressor.
_own = threading.local()


class Damaged(Exception):
    """A node that does not hold what its address says."""


def node_of(payload: bytes, address: bytes | None = None) -> Node:
    """The node that keeps these bytes."""
    body = _PLAIN + payload
    if len(payload) >= _COMPRESSED_FROM and _zstd() is not None:
        packed = _compressed(payload)
        if len(packed) <= _SHARE_MAX * len(payload):
            body = _ZSTD + packed
    return Node(address or address_of(payload), body)


def _compressed(payload: bytes) -> bytes:
    compressor = getattr(_own, "compressor", None)
    if compressor is None:  # making one takes a third of the time
        compressor = _own.compressor = _zstd().ZstdCompressor(_LEVEL)
    packed: bytes = compressor.compress(payload, compressor.FLUSH_FRAME)
    return packed


def payload_of(address: bytes, body: bytes) -> bytes:
    """What a node holds, verified.

    Raises:
        Damaged: that is not what its address says.
        StoreUnavailable: it was compressed, and this process has no zstd.
    """
    payload = opened(body)
    if address_of(payload) != address:
        raise Damaged("it does not match its address")
    return payload


def opened(body: bytes) -> bytes:
    """What a node holds, taken on trust: for whoever only looks for what it names."""
    kept, rest = body[:1], body[1:]
    if kept == _PLAIN:
        return rest
    if kept != _ZSTD:
        raise Damaged(f"it is kept in a way unknown to this release ({kept.hex()})")
    zstd = _zstd()
    if zstd is None:
        raise StoreUnavailable(
            "values here are compressed by zstd, which this Python does not have: "
            "pip install backports.zstd wherever this store is read"
        )
    try:
        opened: bytes = zstd.ZstdDecompressor().decompress(rest, PAYLOAD_BYTES_MAX)
    except zstd.ZstdError as error:
        raise Damaged(f"it can't be decompressed: {error}") from None
    return opened


@cache
def _zstd() -> Any:
    """Python's own module from 3.14 on, or its backport; None: there is none."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None
