"""Value: the transaction coordinator's settings, with Kafka's defaults. Filled from the broker's configuration."""

from __future__ import annotations

from msgspec import Struct


class TransactionConfig(Struct, frozen=True):
    """Each field is the setting of the same name, with `_` for `.`; times in milliseconds."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    transaction_two_phase_commit_enable: bool = False
    write_timeout_ms: int = 30_000
    """How long a change may wait for its replicas: `request.timeout.ms`."""
