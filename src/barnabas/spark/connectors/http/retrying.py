"""Machine: whether a request is sent again, and when.

RFC 9110: 429 and 503 may have a Retry-After, in seconds or as a date. A connection that fails, a time-out, 408, 425,
429 and every 5xx but 501 and 505 may be over soon. Other answers stay the same if the request does.
"""

from __future__ import annotations

import email.utils
from typing import Final

import msgspec

from barnabas.spark.connectors.http.options import HttpOptions

RETRY_AFTER_MAX_MS: Final = 15 * 60 * 1000
"""The longest time that a Retry-After may delay a request."""
_PASSING: Final = (408, 425, 429)
_LASTING_5XX: Final = (501, 505)


class Answer(msgspec.Struct, frozen=True):
    """The answer to a request; `status` is None if there was none, and `text` says why."""

    status: int | None
    text: str
    retry_after: str | None = None
    location: str | None = None


class Accepted(msgspec.Struct, frozen=True):
    """The web service has the records."""


class Again(msgspec.Struct, frozen=True):
    """Send the request again after this time."""

    delay_ms: int


class Refused(msgspec.Struct, frozen=True):
    """The request is not sent again. `lasting` is true if the same request would be refused again."""

    reason: str
    lasting: bool


def judge_answer(
    answer: Answer, sent: int, options: HttpOptions, now_ms: int, jitter: float
) -> Accepted | Again | Refused:
    """What to do after the request was sent `sent` times. `jitter` is from 0 to 1."""
    status = answer.status
    if status is not None and 200 <= status < 300:
        return Accepted()
    if status is not None and not is_passing(status):
        where = f"; it redirects to {answer.location}: set http.url to that address" if answer.location else ""
        return Refused(f"{options.url} answered {status}{where}: {answer.text}", True)
    what = f"did not answer: {answer.text}" if status is None else f"answered {status}: {answer.text}"
    if sent > options.retries_max:
        return Refused(f"{options.url} {what}; the request was sent {sent} times (max.retries)", False)
    asked = retry_after_ms(answer.retry_after, now_ms)
    if asked is not None:
        return Again(min(asked, RETRY_AFTER_MAX_MS))
    delay = min(options.backoff_ms << min(sent - 1, 30), options.backoff_max_ms)
    return Again(int(delay * (1 - jitter / 4)))


def is_passing(status: int) -> bool:
    """Whether the same request may be accepted later."""
    return status in _PASSING or (500 <= status < 600 and status not in _LASTING_5XX)


def retry_after_ms(text: str | None, now_ms: int) -> int | None:
    """The delay that a Retry-After asks for; None if there is none, or if it cannot be read."""
    if text is None:
        return None
    if text.strip().isdigit():
        return min(int(text.strip()[:9]) * 1000, RETRY_AFTER_MAX_MS)
    try:
        date = email.utils.parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    return max(0, int(date.timestamp() * 1000) - now_ms)
