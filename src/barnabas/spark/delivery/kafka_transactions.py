"""Shell: the open transactions of task attempts, as the driver lists and ends them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from barnabas.client.admin import AsyncAdmin
from barnabas.client.values import HandedOverTransaction
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.spark.delivery.decisions import Ended
from barnabas.spark.delivery.names import SinkName, id_pattern

log = logging.getLogger("barnabas.spark")

LIST_TIMEOUT_MS: Final = 10_000
ONGOING: Final = "Ongoing"
_ABORTED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE})
_FORGOTTEN: Final = frozenset({ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND})


class KafkaTransactions:
    """The transactions of a cluster."""

    def __init__(self, admin: AsyncAdmin) -> None:
        self._admin = admin
        self._filters_by_pattern = True

    async def open_ids(self, name: SinkName) -> list[str]:
        """Logs a warning, and returns no id, if a broker does not answer: its orphans are aborted in a later
        micro-batch."""
        try:
            return [i for i in await self.open_ids_with(f"{name.prefix}.{name.query_id}.") if name.is_attempt(i)]
        except KafkaError as error:
            if not error.retriable:
                raise
            log.warning("open transactions of %s cannot be listed now: %s", name.query_id, error)
            return []

    async def open_ids_with(self, prefix: str) -> list[str]:
        """The transactional ids with this prefix that have an open transaction."""
        pattern = id_pattern(prefix) if self._filters_by_pattern else None
        try:
            found = await self._admin.list_transactions(states=[ONGOING], pattern=pattern, timeout_ms=LIST_TIMEOUT_MS)
        except KafkaError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION or pattern is None:
                raise
            self._filters_by_pattern = False  # before Kafka 4.1 (KIP-1152)
            return await self.open_ids_with(prefix)
        return [listing.transactional_id for listing in found if listing.transactional_id.startswith(prefix)]

    async def standing(self, transactional_ids: Iterable[str]) -> dict[str, HandedOverTransaction]:
        described = await self._admin.describe_transactions(transactional_ids)
        found: dict[str, HandedOverTransaction] = {}
        for transactional_id, description in described.items():
            if isinstance(description, KafkaError):
                if description.code not in _FORGOTTEN:
                    raise description
            elif description.state == ONGOING:
                found[transactional_id] = HandedOverTransaction(
                    transactional_id, description.producer_id, description.producer_epoch
                )
        return found

    async def commit(self, transaction: HandedOverTransaction) -> Ended:
        try:
            await self._admin.end_transaction(transaction, commit=True)
        except KafkaError as error:
            if error.code in _ABORTED:
                return Ended.ABORTED
            if error.code in _FORGOTTEN:
                return Ended.UNKNOWN
            raise
        return Ended.COMMITTED

    async def abort(self, transaction: HandedOverTransaction) -> None:
        try:
            await self._admin.end_transaction(transaction, commit=False)
        except KafkaError as error:
            if error.code not in _ABORTED | _FORGOTTEN:
                raise
