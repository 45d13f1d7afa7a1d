"""What a sealed store shows of a run: ids and links that tell nothing, texts that only a key opens.

A sealed run's header has a format of its own, so that no worker without a key claims it, and so
that runs which were begun before there was a key are told from those that were not.
"""

from __future__ import annotations

from msgspec.structs import replace

from outlive.journal.seal import Seal, Veil, data_key_id
from outlive.store import Head, Header, Node

#: Added to the record format of a run that is sealed.
SEALED_FORMAT = 256

_KEY_JOURNAL = "key/"


def stored_id(run_id: str, veil: Veil) -> str:
    """Ids of runs stay readable; an idempotency key is made of arguments and does not."""
    if not run_id.startswith(_KEY_JOURNAL):
        return run_id
    return _KEY_JOURNAL + veil.hide(run_id[len(_KEY_JOURNAL) :], _KEY_JOURNAL)


def shown_id(run_id: str, veil: Veil) -> str:
    """An id that the store has, as it was given."""
    if not run_id.startswith(_KEY_JOURNAL):
        return run_id
    return _KEY_JOURNAL + veil.show(run_id[len(_KEY_JOURNAL) :], _KEY_JOURNAL)


def hide_header(header: Header, run_id: str, veil: Veil) -> Header:
    """As the store sees it."""
    return replace(
        header,
        format=header.format + SEALED_FORMAT,
        tags={name: veil.hide(value, name) for name, value in header.tags.items()},
        reason=veil.hide(header.reason, run_id),
        chapter_link=veil.mask(header.chapter_link, run_id, -header.chapter),
    )


def show_header(header: Header, run_id: str, veil: Veil) -> Header:
    """As it was before. A format that somebody changed is shown as one that there is not."""
    return replace(
        header,
        format=header.format - SEALED_FORMAT,
        tags={name: veil.show(value, name) for name, value in header.tags.items()},
        reason=veil.show(header.reason, run_id),
        chapter_link=veil.mask(header.chapter_link, run_id, -header.chapter),
    )


def show_head(head: Head, veil: Veil) -> Head:
    """The head with the link that its records have."""
    link = veil.mask(head.link, head.run_id, head.seq)
    return replace(head, run_id=shown_id(head.run_id, veil), link=link)


def is_sealed(header: Header) -> bool:
    """Whether the run was begun with a key, as far as its header tells; its records know better."""
    return header.format >= SEALED_FORMAT


def close_node(seal: Seal, family: str, node: Node, veil: Veil) -> Node:
    """A node as the store has it."""
    address = veil.address(node.address, family)
    return Node(address, seal.close(node.body, _node_place(family, address)))


def open_node(seal: Seal | None, family: str, node: Node) -> bytes:
    """Its bytes again; those that do not open are left as they are: their hash tells."""
    if seal is None or data_key_id(node.body) is None:
        return node.body
    opened = seal.open(node.body, _node_place(family, node.address))
    return node.body if opened is None else opened


def record_place(run_id: str, seq: int) -> bytes:
    """Where a record belongs."""
    return b"record %d of " % seq + run_id.encode()


def mail_place(run_id: str, mail_id: str) -> bytes:
    """Where mail belongs; ids hold no zero byte."""
    return f"mail {mail_id}\0{run_id}".encode("utf-8", "surrogatepass")


def _node_place(family: str, address: bytes) -> bytes:
    return b"node " + address + family.encode()
