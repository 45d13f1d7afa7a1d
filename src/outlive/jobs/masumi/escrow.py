"""The Masumi payment service as an escrow."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from outlive.errors import UsageError
from outlive.jobs.escrow import (
    EscrowChange,
    EscrowIdentity,
    EscrowPayment,
    EscrowRefused,
    EscrowUnavailable,
    EscrowView,
    JobOrder,
)
from outlive.jobs.masumi.states import is_nothing, view_of
from outlive.model.retry import Duration, parse_duration

if TYPE_CHECKING:
    import httpx

#: The service lists so many payments at once.
PAGE: Final = 100
FREE_PREFIX: Final = "FREE-"
#: Pages that are searched for a payment whose answer was lost.
_PAGES_MAX = 20
#: Answers that say that nothing happened.
_REFUSALS = (400, 401, 403, 422)
_HOUR_MS = 3_600_000


def input_hash(input_data: Mapping[str, Any], identifier: str) -> str:
    """The hash of an order's input, as ``create_masumi_input_hash`` makes it."""
    text = json.dumps(
        input_data, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
    )
    return hashlib.sha256(f"{identifier};{text}".encode()).hexdigest()


def output_hash(result: str, identifier: str) -> str:
    """The hash of a result, as ``create_masumi_output_hash`` makes it."""
    escaped = json.dumps(result, ensure_ascii=False)[1:-1]
    return hashlib.sha256(f"{identifier};{escaped}".encode()).hexdigest()


class MasumiEscrow:
    """Jobs that are paid through a Masumi payment service.

    ``url`` ends with ``/api/v1``. Buyers have ``pay_within`` to pay, and the result is due
    ``submit_within`` after the order. ``free=True``: nothing is paid, whatever the registry says.
    """

    def __init__(  # noqa: PLR0913 - what differs between agents, each by name
        self,
        url: str,
        key: str,
        agent: str,
        *,
        seller: str = "",
        network: str = "Preprod",
        pay_within: Duration = "12h",
        submit_within: Duration = "24h",
        free: bool = False,
    ) -> None:
        if network not in ("Preprod", "Mainnet"):
            raise UsageError(f"network is Preprod or Mainnet, not {network!r}")
        self._url, self._key = url.rstrip("/"), key
        self._agent, self._seller, self._network = agent, seller, network
        self._pay_ms = round(parse_duration(pay_within) * 1000)
        self._submit_ms = round(parse_duration(submit_within) * 1000)
        self._free = free
        self._client: httpx.AsyncClient | None = None

    @property
    def agent(self) -> str:
        """The agent's identifier in the registry."""
        return self._agent

    async def identity(self) -> EscrowIdentity:
        """The agent's registration; asking changes nothing."""
        if self._free:
            return EscrowIdentity(agent=self._agent, is_free=True)
        query = {"agentIdentifier": self._agent, "network": self._network}
        status, data = await self._call("GET", "/registry/agent-identifier", query)
        if status != 200:
            raise EscrowRefused(f"the registry does not know this agent: {_message(data)}")
        return EscrowIdentity(agent=self._agent, is_free=_is_free(data))

    async def request(self, order: JobOrder, now_ms: int) -> EscrowPayment:
        """Ask for a payment; a free agent's order needs none."""
        if (await self.identity()).is_free:
            return self._free_payment(order, now_ms)
        body = {
            "agentIdentifier": self._agent,
            "network": self._network,
            "paymentType": "Web3CardanoV1",
            "payByTime": _iso(now_ms + self._pay_ms),
            "submitResultTime": _iso(now_ms + self._submit_ms),
            "identifierFromPurchaser": order.identifier,
            "inputHash": order.input_hash,
        }
        status, data = await self._call("POST", "/payment/", body)
        if status != 200:
            raise EscrowUnavailable(f"the payment service answered {status}: {_message(data)}")
        return self._payment(data)

    async def find(self, order: JobOrder) -> EscrowPayment | None:
        """The payment of an order, among the newest of this agent."""
        cursor = ""
        for _ in range(_PAGES_MAX):
            query = {"network": self._network, "limit": str(PAGE), "cursorId": cursor}
            status, data = await self._call("GET", "/payment/", _said(query))
            if status != 200:
                raise EscrowUnavailable(f"the payment service answered {status}: {_message(data)}")
            page = data.get("Payments") or []
            for each in page:
                if self._is_of(each, order):
                    return self._payment(each)
            if len(page) < PAGE or page[-1]["id"] == cursor:
                return None
            cursor = page[-1]["id"]
        return None

    def _is_of(self, data: Mapping[str, Any], order: JobOrder) -> bool:
        is_mine = data.get("agentIdentifier") == self._agent
        return is_mine and data.get("inputHash") == order.input_hash

    async def look(self, payment_id: str) -> EscrowView:
        """What has become of a payment."""
        if payment_id.startswith(FREE_PREFIX):
            return EscrowView(standing="free", state="FREE_AGENT")
        data = await self._resolve(payment_id)
        return EscrowView(standing="unpaid", state="404") if data is None else view_of(data)

    async def submit(self, payment_id: str, digest: str) -> EscrowView:
        """Hand the result in, if the service waits for it."""
        data = await self._resolve(payment_id)
        if data is None:
            return EscrowView(standing="unpaid", state="404")
        view = view_of(data)
        if view.standing == "stuck":
            return await self._recover(data, digest)
        if view.standing not in ("funded", "refund_requested", "disputed"):
            return view
        body = {
            "network": self._network,
            "blockchainIdentifier": payment_id,
            "submitResultHash": digest,
        }
        status, found = await self._call("POST", "/payment/submit-result", body)
        if status == 200:
            return view_of(found)
        return await self.look(payment_id)  # 404 and 409 say that it stands otherwise by now

    async def _recover(self, data: Mapping[str, Any], digest: str) -> EscrowView:
        """Let the service try again what went wrong, if it is still as it was looked at."""
        body = {
            "network": self._network,
            "blockchainIdentifier": data["blockchainIdentifier"],
            "updatedAt": data["updatedAt"],
            "retryPreviousAction": (data.get("NextAction") or {}).get("resultHash") == digest,
        }
        await self._call("POST", "/payment/error-state-recovery", body)
        return await self.look(data["blockchainIdentifier"])

    async def release(self, payment_id: str) -> None:
        """Authorize the refund that the buyer has requested."""
        body = {"network": self._network, "blockchainIdentifier": payment_id}
        await self._call("POST", "/payment/authorize-refund", body)

    async def changes(self, after: str) -> tuple[list[EscrowChange], str]:
        """A page of ``/payment/diff``."""
        since, _, cursor = after.partition(" ")
        if since.startswith("@"):
            since = _iso(int(since[1:]))
        query = {"network": self._network, "limit": str(PAGE)}
        query |= _said({"lastUpdate": since, "cursorId": cursor})
        status, data = await self._call("GET", "/payment/diff", query)
        if status != 200:
            raise EscrowUnavailable(f"the payment service answered {status}: {_message(data)}")
        page = data.get("Payments") or []
        found = [_change(each) for each in page]
        if page:
            after = f"{_changed_at(page[-1])} {page[-1]['id']}"
        return found, after

    def input_hash(self, input_data: dict[str, Any], identifier: str) -> str:
        """As ``create_masumi_input_hash``."""
        return input_hash(input_data, identifier)

    def digest(self, result: str, identifier: str) -> str:
        """As ``create_masumi_output_hash``."""
        return output_hash(result, identifier)

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _resolve(self, payment_id: str) -> dict[str, Any] | None:
        body = {"network": self._network, "blockchainIdentifier": payment_id}
        path = "/payment/resolve-blockchain-identifier"
        status, data = await self._call("POST", path, body | {"includeHistory": "false"})
        if status == 404:
            return None
        if status != 200:
            raise EscrowUnavailable(f"the payment service answered {status}: {_message(data)}")
        return data

    async def _call(
        self, method: str, path: str, values: Mapping[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        """The status and what came with it.

        Raises:
            EscrowUnavailable: no answer, or one that says nothing.
            EscrowRefused: the service refused the request itself.
        """
        import httpx

        if self._client is None:
            self._client = httpx.AsyncClient(headers={"token": self._key}, timeout=30)
        said: dict[str, Any] = {"params" if method == "GET" else "json": dict(values)}
        try:
            answer = await self._client.request(method, self._url + path, **said)
            found = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise EscrowUnavailable(
                f"the payment service can't be reached: {type(error).__name__}"
            ) from error
        if not isinstance(found, dict) or answer.status_code >= 500:
            raise EscrowUnavailable(f"the payment service answered {answer.status_code}")
        if answer.status_code in _REFUSALS:
            raise EscrowRefused(
                f"the payment service refused ({answer.status_code}): {_message(found)}"
            )
        data = found.get("data")
        return answer.status_code, data if isinstance(data, dict) else found

    def _payment(self, data: Mapping[str, Any]) -> EscrowPayment:
        wallet = data.get("SmartContractWallet") or {}
        return EscrowPayment(
            id=data["blockchainIdentifier"],
            pay_by=in_ms(data["payByTime"]),
            submit_by=in_ms(data["submitResultTime"]),
            unlock_at=in_ms(data["unlockTime"]),
            dispute_until=in_ms(data["externalDisputeUnlockTime"]),
            seller=self._seller or str(wallet.get("walletVkey", "")),
        )

    def _free_payment(self, order: JobOrder, now_ms: int) -> EscrowPayment:
        return EscrowPayment(
            id=FREE_PREFIX + hashlib.sha256(order.job_id.encode()).hexdigest()[:24],
            pay_by=now_ms + self._pay_ms,
            submit_by=now_ms + self._submit_ms,
            unlock_at=now_ms + self._submit_ms + 6 * _HOUR_MS,
            dispute_until=now_ms + self._submit_ms + 12 * _HOUR_MS,
            seller=self._seller,
            is_free=True,
        )


def in_ms(value: object) -> int:
    """A time in milliseconds; some are seconds, as those of free agents."""
    number = int(str(value))
    return number * 1000 if number < 10**11 else number


def _is_free(data: Mapping[str, Any]) -> bool:
    metadata = data.get("Metadata") or data
    pricing = metadata.get("AgentPricing") or {}
    kind, prices = pricing.get("pricingType", data.get("pricingType")), pricing.get("Pricing")
    if kind == "Free" or data.get("isFree") is True:
        return True
    return kind == "Fixed" and bool(prices) and is_nothing({"RequestedFunds": prices})


def _changed_at(data: Mapping[str, Any]) -> str:
    return str(data["nextActionOrOnChainStateOrResultLastChangedAt"])


def _change(data: Mapping[str, Any]) -> EscrowChange:
    return EscrowChange(
        agent=str(data.get("agentIdentifier")),
        input_hash=str(data.get("inputHash")),
        standing=view_of(data).standing,
        mark=f"{_changed_at(data)} {data['id']}",
    )


def _said(query: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in query.items() if value}


def _message(data: Mapping[str, Any]) -> str:
    error = data.get("error")
    return str(error.get("message")) if isinstance(error, dict) else "no reason given"


def _iso(ms: int) -> str:
    when = datetime.fromtimestamp(ms / 1000, UTC)
    return when.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
