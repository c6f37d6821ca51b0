"""Value: the transaction coordinator's configuration."""

from __future__ import annotations

from msgspec import Struct


class TransactionConfig(Struct, frozen=True):
    """Each field is the broker config of the same name, with `_` in place of `.`. Times are in milliseconds."""

    transaction_max_timeout_ms: int
    transactional_id_expiration_ms: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_two_phase_commit_enable: bool
    request_timeout_ms: int
    """How long a write to `__transaction_state` may wait to be committed."""
