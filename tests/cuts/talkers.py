"""Agents that talk, and whether what they have in the end is what everybody sent, once, in order.

Each asks each other one a few times and replies to what it is asked. When they ask, look and save
is left to chance. What counts in the end is not: digests over the asks and the replies of each
channel in their order, which loss, doubling and reordering change. Every message also has a nonce,
which is another one if the message is made again; states list those of each channel, so that the
lists of sender and receiver must be the same at the end, and at a cut the receiver's and what is
in flight must be the sender's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from random import Random
from typing import Any

from outlive.checkpoints.agents.cuts import Cut
from outlive.checkpoints.agents.exchange import Exchange, Message

NAMES = ("ada", "bob", "cyd", "dan", "eve")
ASKS = 2
SAVES = 0.4
SENDS = 0.5

State = dict[str, Any]


def others(name: str) -> list[str]:
    return [other for other in NAMES if other != name]


def fresh(peers: Sequence[str]) -> State:
    """The state of an agent that has not begun."""
    return {
        kind: {peer: empty() for peer in peers}
        for kind, empty in (
            *(("asked", int), ("heard", int), ("told", int)),
            *(("asks", str), ("replies", str)),
            *(("out", list), ("in", list)),
        )
    }


def is_done(state: State) -> bool:
    return all(n == ASKS for kind in ("asked", "heard", "told") for n in state[kind].values())


async def talk(exchange: Exchange, chance: Random, turns_max: int = 1 << 30) -> None:
    """Go on from where the agent is, to its end or for so many turns."""
    state = exchange.state or fresh(exchange.peers)
    is_saved = True
    for turn in range(1, turns_max + 1):
        if is_done(state):
            break
        await asyncio.sleep(0)  # where a store never waits, others want to act, too
        unasked = [peer for peer, asked in state["asked"].items() if asked < ASKS]
        if unasked and chance.random() < SENDS:
            ask(exchange, state, chance.choice(unasked), chance)
            is_saved = False
        else:
            message = await exchange.receive(timeout=0)
            if message is not None:
                hear(exchange, state, message, chance)
                is_saved = False
        if not is_saved and (is_done(state) or turn == turns_max or chance.random() < SAVES):
            await exchange.checkpoint(f"step-{chance.randrange(3)}", state)
            is_saved = True


def ask(exchange: Exchange, state: State, peer: str, chance: Random) -> None:
    state["asked"][peer] += 1
    send(exchange, state, peer, {"ask": state["asked"][peer], "nonce": chance.getrandbits(40)})


def hear(exchange: Exchange, state: State, message: Message, chance: Random) -> None:
    peer, body = message.sender, message.body
    state["in"][peer].append(body["nonce"])
    if "ask" in body:
        state["heard"][peer] += 1
        state["asks"][peer] = digest(state["asks"][peer], body["ask"])
        told = {"reply": body["ask"], "digest": state["asks"][peer]}
        send(exchange, state, peer, {**told, "nonce": chance.getrandbits(40)})
    else:
        state["told"][peer] += 1
        state["replies"][peer] = digest(state["replies"][peer], body["reply"], body["digest"])


def send(exchange: Exchange, state: State, peer: str, body: dict[str, Any]) -> None:
    state["out"][peer].append(body["nonce"])
    exchange.send(peer, body)


def digest(*parts: object) -> str:
    return blake2b(repr(parts).encode(), digest_size=8).hexdigest()


def expected() -> dict[str, str]:
    """What every channel's digests are in the end, whoever was killed when."""
    asks = replies = ""
    for number in range(1, ASKS + 1):
        asks = digest(asks, number)
        replies = digest(replies, number, asks)
    return {"asks": asks, "replies": replies}


def check_end(states: Mapping[str, State | None]) -> None:
    """Everybody has everything, once and in order."""
    for name in NAMES:
        state = states[name]
        assert state is not None, name
        for peer in others(name):
            found = {kind: state[kind][peer] for kind in ("asks", "replies")}
            assert expected() == found, f"{peer} -> {name}"
            sender = states[peer]
            assert sender is not None, peer
            assert sender["out"][name] == state["in"][peer], f"{peer} -> {name}"


def check_cut(cut: Cut) -> int:
    """What was heard and what is in flight is what was sent; how many messages are in flight."""
    in_flight = cut.in_flight
    for sender in NAMES:
        for receiver in others(sender):
            heard, sent = listed(cut, receiver, "in", sender), listed(cut, sender, "out", receiver)
            nonces = [body["nonce"] for body in in_flight.get((sender, receiver), [])]
            assert sent == heard + nonces, f"{sender} -> {receiver}"
    return sum(map(len, in_flight.values()))


def listed(cut: Cut, name: str, kind: str, peer: str) -> list[int]:
    snapshot = cut.agents[name]
    if snapshot is None:
        return []
    nonces: list[int] = snapshot.state[kind][peer]
    return nonces
