"""The ledger of the fake payment service: payments, the chain's clock, faults, and what happened.

It is one SQLite file. The server and the tests that control it open it side by side, in one process
or in several; what was answered is durable, so the service may be killed and started again.

The rules are those of the real service: what a request must hold, which state and next action allow
it, and how its workers bring a payment forward. A result is only sent to the chain if more than
five minutes are left; what was accepted later than that stays in the queue for ever.
"""

from __future__ import annotations

import json
import re
import secrets
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
#: The service sends no result to the chain when less than this is left.
SUBMIT_MARGIN_MS: Final = 5 * MINUTE
#: Wallets withdraw this long after they may.
WITHDRAW_DELAY_MS: Final = 10 * MINUTE
_ACCEPTS_RESULT = ("FundsLocked", "RefundRequested", "Disputed")
#: What a buyer must say as the seller said it.
_SHARED = (
    "payByTime", "submitResultTime", "unlockTime", "externalDisputeUnlockTime", "agentIdentifier",
    "identifierFromPurchaser", "inputHash",
)  # fmt: skip
_HEX = re.compile(r"[0-9a-fA-F]*")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS payment (
    id TEXT PRIMARY KEY, bid TEXT UNIQUE NOT NULL, network TEXT NOT NULL, changed TEXT NOT NULL,
    doc TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS payment_changed ON payment (changed, id);
CREATE TABLE IF NOT EXISTS entry (
    n INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, kind TEXT NOT NULL,
    bid TEXT NOT NULL, detail TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS setting (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS fault (
    n INTEGER PRIMARY KEY AUTOINCREMENT, route TEXT NOT NULL, kind TEXT NOT NULL,
    seconds REAL NOT NULL, times INTEGER NOT NULL);
"""


class ServiceRefusal(Exception):
    """The service answers with this status and message."""

    def __init__(self, status: int, message: str, **extra: Any) -> None:
        super().__init__(message)
        self.status, self.message, self.extra = status, message, extra


def iso(ms: int) -> str:
    """An instant as the service writes it."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def instant(value: object, name: str) -> int:
    """An instant of a request, ISO text or milliseconds, in milliseconds."""
    if not isinstance(value, str):
        raise ServiceRefusal(400, f"{name}: expected a date as text")
    try:
        if value.isdigit():
            return int(value)
        return round(datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp() * 1000)
    except ValueError:
        raise ServiceRefusal(400, f"{name}: invalid date") from None


class PaymentLedger:
    """Payments in one file, with the rules of the service."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._open() as db:
            db.executescript("PRAGMA journal_mode=WAL;" + _SCHEMA)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        db = sqlite3.connect(self.path, timeout=60, isolation_level=None)
        try:
            db.execute("PRAGMA synchronous=FULL")
            yield db
        finally:
            db.close()

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")

    # settings and time

    def setting(self, name: str, default: Any = None) -> Any:
        """A setting by its name."""
        with self._open() as db:
            return _setting(db, name, default)

    def set(self, name: str, value: Any) -> None:
        """Set a setting."""
        with self._write() as db:
            _set(db, name, value)

    def now_ms(self) -> int:
        """The chain's time: this machine's, moved by ``advance``."""
        with self._open() as db:
            return _now(db)

    def advance(self, ms: int) -> None:
        """Move the chain's time; the workers of the service take what steps are due."""
        with self._write() as db:
            _set(db, "offset", int(_setting(db, "offset", 0)) + ms)
            for doc in _docs(db):
                while _bring_on(doc, _now(db), 0):
                    _note_chain(db, doc)
                    _save(db, doc, _now(db))

    def step(self) -> None:
        """One step of the service's workers and of the chain, for every payment."""
        with self._write() as db:
            now, delay = _now(db), int(_setting(db, "confirm_ms", 0))
            for doc in _docs(db):
                if _bring_on(doc, now, delay):
                    _note_chain(db, doc)
                    _save(db, doc, now)

    # faults

    def add_fault(self, route: str, kind: str, seconds: float, times: int) -> None:
        """Let the next requests of a route go wrong."""
        with self._write() as db:
            sql = "INSERT INTO fault (route, kind, seconds, times) VALUES (?, ?, ?, ?)"
            db.execute(sql, (route, kind, seconds, times))

    def take_fault(self, route: str) -> tuple[str, float] | None:
        """The fault that this request meets, counted."""
        with self._write() as db:
            sql = "SELECT n, kind, seconds, times FROM fault WHERE route IN (?, '*') ORDER BY n"
            row = db.execute(sql, (route,)).fetchone()
            if row is None:
                return None
            n, kind, seconds, times = row
            if times == 1:
                db.execute("DELETE FROM fault WHERE n = ?", (n,))
            else:
                db.execute("UPDATE fault SET times = ? WHERE n = ?", (times - 1, n))
            return kind, seconds

    def clear_faults(self) -> None:
        """Let nothing go wrong any more."""
        with self._write() as db:
            db.execute("DELETE FROM fault")

    # what happened

    def entries(self, kind: str | None = None, bid: str | None = None) -> list[dict[str, Any]]:
        """What happened, in its order: "created", "submission", "confirmed", "call" and others."""
        sql = (
            "SELECT at, kind, bid, detail FROM entry "
            "WHERE (? IS NULL OR kind = ?) AND (? IS NULL OR bid = ?) ORDER BY n"
        )
        with self._open() as db:
            rows = db.execute(sql, (kind, kind, bid, bid)).fetchall()
        return [
            {"at": at, "kind": kind, "bid": bid, **json.loads(detail)}
            for at, kind, bid, detail in rows
        ]

    def note_call(self, route: str) -> None:
        """Record a request."""
        with self._write() as db:
            _note(db, "call", "", route=route)

    def payments(self) -> list[dict[str, Any]]:
        """All payments, oldest first."""
        with self._open() as db:
            return [_shown(doc) for doc in _docs(db)]

    # the buyer and the chain, as tests control them

    def pay(self, bid: str) -> None:
        """The buyer locks the funds, in time or not at all."""
        with self._write() as db:
            doc = _get(db, bid)
            if _now(db) > int(doc["payByTime"]):
                raise ServiceRefusal(400, "the payment's time is over")
            _lock_funds(doc, _now(db))
            _save(db, doc, _now(db))

    def force(self, bid: str, **fields: Any) -> None:
        """Put a payment into any state: ``state``, ``action``, ``error``, ``hash``, ``queued``."""
        with self._write() as db:
            doc, now = _get(db, bid), _now(db)
            if "state" in fields:
                doc["onChainState"] = fields["state"]
                doc["CurrentTransaction"] = doc["CurrentTransaction"] or _transaction(now)
            if "hash" in fields:
                doc["resultHash"] = fields["hash"]
            if "action" in fields:
                queued, error = fields.get("queued"), fields.get("error")
                doc["NextAction"] = _action(fields["action"], queued, error)
            _save(db, doc, now)

    def roll_back(self, bid: str) -> None:
        """The confirmed submission vanishes from the chain; the funds are locked as before."""
        with self._write() as db:
            doc, now = _get(db, bid), _now(db)
            doc["CurrentTransaction"] = _transaction(now, "RolledBack")
            doc["onChainState"], doc["resultHash"] = "FundsLocked", ""
            doc["NextAction"] = _action("WaitingForExternalAction")
            _note(db, "rolled_back", bid)
            _save(db, doc, now)

    def request_refund(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The buyer wants the money back."""
        return self._buyer(body, {"FundsLocked": "RefundRequested", "ResultSubmitted": "Disputed"})

    def cancel_refund(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The buyer takes that back."""
        return self._buyer(body, {"RefundRequested": "FundsLocked", "Disputed": "ResultSubmitted"})

    def _buyer(self, body: Mapping[str, Any], states: Mapping[str, str]) -> dict[str, Any]:
        with self._write() as db:
            doc, now = _find(db, body), _now(db)
            if doc["onChainState"] not in states or now >= int(doc["unlockTime"]):
                raise ServiceRefusal(404, "Purchase not found or in invalid state")
            doc["onChainState"] = states[doc["onChainState"]]
            _save(db, doc, now)
            return _shown(doc)

    # the service's own verbs

    def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """POST /payment/"""
        with self._write() as db:
            now = _now(db)
            agent, times = _checked(body, _setting(db, "agents", {}), now)
            doc = _new_payment(body, agent, times, now)
            _note(db, "created", doc["blockchainIdentifier"])
            _save(db, doc, now)
            return _shown(doc)

    def purchase(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """POST /purchase/: the buyer's node will lock the funds."""
        with self._write() as db:
            doc, now = _find(db, body), _now(db)
            said = {**doc, "identifierFromPurchaser": doc["_identifier"]}
            wrong = [name for name in _SHARED if str(body.get(name)) != str(said.get(name))]
            if wrong:
                raise ServiceRefusal(400, f"does not fit the payment: {', '.join(wrong)}")
            if doc["onChainState"] is not None or doc["_wants_lock"]:
                raise ServiceRefusal(409, "Purchase already exists", id=doc["id"])
            doc["_wants_lock"] = True
            _save(db, doc, now)
            return _shown(doc)

    def resolve(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """POST /payment/resolve-blockchain-identifier"""
        with self._open() as db:
            return _shown(_find(db, body))

    def submit(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """POST /payment/submit-result: put a result's hash into the queue."""
        with self._write() as db:
            found = body.get("submitResultHash")
            if not isinstance(found, str) or not found or not _is_hex(found, 250):
                raise ServiceRefusal(400, "submitResultHash: expected hex of up to 250 digits")
            doc = _find(db, body, "Payment not found or in invalid state")
            bid, now = doc["blockchainIdentifier"], _now(db)
            may = doc["onChainState"] in _ACCEPTS_RESULT and _waits(doc)
            if not may or doc["CurrentTransaction"] is None:
                raise ServiceRefusal(404, "Payment not found or in invalid state")
            doc["NextAction"] = _action("SubmitResultRequested", found)
            _note(db, "submission", bid, hash=found)
            _save(db, doc, now)
            return _shown(doc)

    def authorize_refund(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """POST /payment/authorize-refund"""
        with self._write() as db:
            doc = _find(db, body, "Payment not found or in invalid state")
            if doc["onChainState"] not in ("Disputed", "RefundRequested") or not _waits(doc):
                raise ServiceRefusal(404, "Payment not found or in invalid state")
            doc["NextAction"] = _action("AuthorizeRefundRequested")
            _note(db, "refund_authorized", doc["blockchainIdentifier"])
            _save(db, doc, _now(db))
            return _shown(doc)

    def recover(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """POST /payment/error-state-recovery"""
        with self._write() as db:
            doc = _find(db, body)
            if instant(body.get("updatedAt"), "updatedAt") != instant(doc["updatedAt"], ""):
                raise ServiceRefusal(404, "Payment request not found or it was changed")
            action = doc["NextAction"]
            if action["requestedAction"] != "WaitingForManualAction" or not action["errorType"]:
                raise ServiceRefusal(400, "Payment request is not in an error state")
            again = bool(body.get("retryPreviousAction")) and action["resultHash"]
            name = "SubmitResultRequested" if again else "WaitingForExternalAction"
            doc["NextAction"] = _action(name, action["resultHash"] if again else None)
            _note(db, "recovered", doc["blockchainIdentifier"])
            _save(db, doc, _now(db))
            return _shown(doc)

    def page(self, query: Mapping[str, str], *, changed: bool) -> dict[str, Any]:
        """GET /payment/ (newest first) and GET /payment/diff (by the time of their change)."""
        limit = query.get("limit", "10")
        if not limit.isdigit() or not 1 <= int(limit) <= 100:
            raise ServiceRefusal(400, "limit: between 1 and 100")
        network, cursor = _network(query), query.get("cursorId", "")
        with self._open() as db:
            if changed:
                since = iso(instant(query.get("lastUpdate", iso(0)), "lastUpdate"))
                sql = "(changed > ? OR (changed = ? AND id >= ?)) ORDER BY changed, id"
                rows: tuple[Any, ...] = (since, since, cursor)
            else:
                sql = "(? = '' OR rowid <= (SELECT rowid FROM payment WHERE id = ?))"
                sql, rows = f"{sql} ORDER BY rowid DESC", (cursor, cursor)
            sql = f"SELECT doc FROM payment WHERE network = ? AND {sql} LIMIT ?"
            found = db.execute(sql, (network, *rows, int(limit))).fetchall()
        return {"Payments": [_shown(json.loads(doc)) for (doc,) in found]}

    def agent(self, query: Mapping[str, str]) -> dict[str, Any]:
        """GET /registry/agent-identifier"""
        _network(query)
        name = query.get("agentIdentifier", "")
        agent = self.setting("agents", {}).get(name)
        if agent is None:
            raise ServiceRefusal(404, "Agent identifier not found")
        prices = [{"amount": agent["amount"], "unit": ""}]
        pricing: dict[str, Any] = {"pricingType": agent["pricing"]}
        if agent["pricing"] != "Free":
            pricing["Pricing"] = prices
        return {
            "policyId": name[:56],
            "assetName": name[56:],
            "agentIdentifier": name,
            "Metadata": {"name": "Fake", "AgentPricing": pricing},
        }


def _setting(db: sqlite3.Connection, name: str, default: Any) -> Any:
    row = db.execute("SELECT value FROM setting WHERE name = ?", (name,)).fetchone()
    return default if row is None else json.loads(row[0])


def _set(db: sqlite3.Connection, name: str, value: Any) -> None:
    db.execute("INSERT OR REPLACE INTO setting VALUES (?, ?)", (name, json.dumps(value)))


def _now(db: sqlite3.Connection) -> int:
    return time.time_ns() // 1_000_000 + int(_setting(db, "offset", 0))


def _note(db: sqlite3.Connection, kind: str, bid: str, **detail: Any) -> None:
    sql = "INSERT INTO entry (at, kind, bid, detail) VALUES (?, ?, ?, ?)"
    db.execute(sql, (_now(db), kind, bid, json.dumps(detail)))


def _docs(db: sqlite3.Connection) -> list[dict[str, Any]]:
    return [json.loads(doc) for (doc,) in db.execute("SELECT doc FROM payment ORDER BY rowid")]


def _get(db: sqlite3.Connection, bid: object, missing: str = "Payment not found") -> dict[str, Any]:
    row = db.execute("SELECT doc FROM payment WHERE bid = ?", (bid,)).fetchone()
    if row is None:
        raise ServiceRefusal(404, missing)
    found: dict[str, Any] = json.loads(row[0])
    return found


def _find(
    db: sqlite3.Connection, body: Mapping[str, Any], missing: str = "Payment not found"
) -> dict[str, Any]:
    network, bid = _network(body), body.get("blockchainIdentifier")
    if not isinstance(bid, str) or not bid:
        raise ServiceRefusal(400, "blockchainIdentifier: expected a text")
    doc = _get(db, bid, missing)
    if doc["PaymentSource"]["network"] != network:
        raise ServiceRefusal(404, missing)
    return doc


def _save(db: sqlite3.Connection, doc: dict[str, Any], now: int) -> None:
    known = db.execute("SELECT doc FROM payment WHERE id = ?", (doc["id"],)).fetchone()
    old = {} if known is None else json.loads(known[0])
    at = iso(max(now, instant(doc["updatedAt"], "") + 1) if old else now)
    doc["updatedAt"] = at
    has_action, states = old.get("NextAction") != doc["NextAction"], ("onChainState", "resultHash")
    has_state = any(old.get(name) != doc[name] for name in states)
    if has_action:
        doc["nextActionLastChangedAt"] = at
    if has_state:
        doc["onChainStateOrResultLastChangedAt"] = at
    if has_action or has_state:
        doc["nextActionOrOnChainStateOrResultLastChangedAt"] = at
    changed = doc["nextActionOrOnChainStateOrResultLastChangedAt"]
    bid, network = doc["blockchainIdentifier"], doc["PaymentSource"]["network"]
    sql = "INSERT INTO payment VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE "
    sql += "SET changed = excluded.changed, doc = excluded.doc"
    db.execute(sql, (doc["id"], bid, network, changed, json.dumps(doc)))


def _shown(doc: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in doc.items() if not name.startswith("_")}


def _network(body: Mapping[str, Any]) -> str:
    network = body.get("network")
    if network not in ("Preprod", "Mainnet"):
        raise ServiceRefusal(400, "network: expected Preprod or Mainnet")
    return str(network)


def _is_hex(text: object, longest: int, shortest: int = 0) -> bool:
    if not isinstance(text, str) or not shortest <= len(text) <= longest:
        return False
    return _HEX.fullmatch(text) is not None


def _waits(doc: Mapping[str, Any]) -> bool:
    return bool(doc["NextAction"]["requestedAction"] == "WaitingForExternalAction")


def _action(name: str, result: str | None = None, error: str | None = None) -> dict[str, Any]:
    note = None if error is None else f"{error} in the fake service"
    return {"requestedAction": name, "errorType": error, "errorNote": note, "resultHash": result}


def _transaction(now: int, status: str = "Confirmed") -> dict[str, Any]:
    name = secrets.token_hex(32)
    return {"id": name[:24], "createdAt": iso(now), "txHash": name, "status": status}


def _checked(
    body: Mapping[str, Any], agents: Mapping[str, Any], now: int
) -> tuple[Mapping[str, Any], dict[str, int]]:
    """Check a payment request as the service does; return its agent and its times."""
    _network(body)
    name, wrong = body.get("agentIdentifier"), list[str]()
    if not isinstance(name, str) or not 57 <= len(name) <= 250:
        wrong.append("agentIdentifier: expected 57 to 250 characters")
    if not _is_hex(body.get("identifierFromPurchaser"), 26, 14):
        wrong.append("identifierFromPurchaser: expected hex of 14 to 26 digits")
    if not _is_hex(body.get("inputHash"), 250):
        wrong.append("inputHash: expected hex of up to 250 digits")
    if wrong:
        raise ServiceRefusal(400, "; ".join(wrong))
    times = _times(body, now)
    if str(name) not in agents:
        raise ServiceRefusal(404, "Network and policyId combination not supported")
    return agents[str(name)], times


def _times(body: Mapping[str, Any], now: int) -> dict[str, int]:
    pay = instant(body.get("payByTime", iso(now + 12 * HOUR)), "payByTime")
    submit = instant(body.get("submitResultTime", iso(now + 24 * HOUR)), "submitResultTime")
    unlock = instant(body.get("unlockTime", iso(submit + 6 * HOUR)), "unlockTime")
    dispute = instant(
        body.get("externalDisputeUnlockTime", iso(submit + 12 * HOUR)), "externalDisputeUnlockTime"
    )
    rules = (
        (pay > submit - 5 * MINUTE, "Pay by time must be before submit result time (5 minutes)"),
        (pay < now - 5 * MINUTE, "Pay by time must be in the future"),
        (submit < now + 15 * MINUTE, "Submit result time must be in the future (15 minutes)"),
        (submit > unlock - 15 * MINUTE, "Submit result time must be before unlock time"),
        (dispute < unlock + 15 * MINUTE, "External dispute unlock time must be after unlock time"),
    )
    for is_broken, message in rules:
        if is_broken:
            raise ServiceRefusal(400, message)
    return {
        "payByTime": pay,
        "submitResultTime": submit,
        "unlockTime": unlock,
        "externalDisputeUnlockTime": dispute,
    }


def _new_payment(
    body: Mapping[str, Any], agent: Mapping[str, Any], times: Mapping[str, int], now: int
) -> dict[str, Any]:
    return {
        "id": "c" + secrets.token_hex(12),
        "createdAt": iso(now),
        "updatedAt": iso(now),
        "blockchainIdentifier": "bid" + secrets.token_hex(40),
        "agentIdentifier": body["agentIdentifier"],
        "agentName": "Fake",
        "pricingType": agent["pricing"],
        "lastCheckedAt": None,
        **{name: str(ms) for name, ms in times.items()},
        "requestedById": "apikey1",
        "resultHash": "",
        "inputHash": body["inputHash"],
        "cooldownTime": 0,
        "cooldownTimeOtherParty": 0,
        "onChainState": None,
        "NextAction": _action("WaitingForExternalAction"),
        "CurrentTransaction": None,
        "RequestedFunds": [{"amount": agent["amount"], "unit": ""}],
        "WithdrawnForSeller": [],
        "WithdrawnForBuyer": [],
        "PaymentSource": {"network": body["network"], "paymentSourceType": "Web3CardanoV1"},
        "BuyerWallet": None,
        "SmartContractWallet": {"id": "w1", "walletVkey": agent["vkey"]},
        "metadata": body.get("metadata"),
        "totalBuyerCardanoFees": 0,
        "totalSellerCardanoFees": 0,
        "_identifier": body["identifierFromPurchaser"],
        "_wants_lock": False,
        "_may_refund": False,
    }


def _lock_funds(doc: dict[str, Any], now: int) -> None:
    if doc["onChainState"] is not None:
        raise ServiceRefusal(409, "the funds were locked already")
    doc["onChainState"], doc["CurrentTransaction"] = "FundsLocked", _transaction(now)
    doc["BuyerWallet"], doc["_wants_lock"] = {"id": "b1", "walletVkey": "buyer"}, False


def _note_chain(db: sqlite3.Connection, doc: Mapping[str, Any]) -> None:
    if doc["onChainState"] in ("ResultSubmitted", "Disputed") and _waits(doc):
        _note(db, "confirmed", doc["blockchainIdentifier"], hash=doc["resultHash"])


def _bring_on(doc: dict[str, Any], now: int, delay: int) -> bool:
    """Take the next step of a payment, if one is due."""
    changed = doc["nextActionOrOnChainStateOrResultLastChangedAt"]
    if delay and now < instant(changed, "") + delay:
        return False
    if doc["_wants_lock"]:
        if now > int(doc["payByTime"]):
            return False
        _lock_funds(doc, now)
        return True
    match doc["NextAction"]["requestedAction"]:
        case "SubmitResultRequested" | "SubmitResultInitiated" as name:
            return _submit_on(doc, name, now)
        case "AuthorizeRefundRequested" | "WithdrawRequested" as name:
            doc["NextAction"] = _action(name.replace("Requested", "Initiated"))
            return True
        case "AuthorizeRefundInitiated":
            doc["onChainState"], doc["resultHash"] = "RefundRequested", ""
            doc["NextAction"], doc["_may_refund"] = _action("WaitingForExternalAction"), True
            return True
        case "WithdrawInitiated":
            doc["onChainState"], doc["NextAction"] = "Withdrawn", _action("None")
            return True
        case "WaitingForExternalAction":
            return _withdraw(doc, now)
    return False


def _submit_on(doc: dict[str, Any], name: str, now: int) -> bool:
    queued, deadline = doc["NextAction"]["resultHash"], int(doc["submitResultTime"])
    if doc["resultHash"]:
        deadline = int(doc["externalDisputeUnlockTime"])  # a second one may replace the first
    if name == "SubmitResultRequested":
        if deadline <= now + SUBMIT_MARGIN_MS:
            return False
        doc["NextAction"] = _action("SubmitResultInitiated", queued)
        doc["CurrentTransaction"] = _transaction(now, "Pending")
        return True
    if deadline <= now:
        return False
    is_refund = doc["onChainState"] in ("RefundRequested", "Disputed")
    doc["onChainState"] = "Disputed" if is_refund else "ResultSubmitted"
    doc["resultHash"], doc["CurrentTransaction"] = queued, _transaction(now)
    doc["NextAction"] = _action("WaitingForExternalAction")
    return True


def _withdraw(doc: dict[str, Any], now: int) -> bool:
    """What the wallets do by themselves when their time has come."""
    state = doc["onChainState"]
    if state == "ResultSubmitted" and now > int(doc["unlockTime"]) + WITHDRAW_DELAY_MS:
        doc["NextAction"] = _action("WithdrawRequested")
        return True
    is_late = now > int(doc["submitResultTime"]) + WITHDRAW_DELAY_MS
    is_free = state in ("FundsLocked", "RefundRequested") and not doc["resultHash"]
    if is_free and (is_late or doc["_may_refund"]):
        doc["onChainState"], doc["NextAction"] = "RefundWithdrawn", _action("None")
        return True
    return False
