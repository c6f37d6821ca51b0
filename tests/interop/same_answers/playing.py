"""Shell: plays one scenario to two brokers, and compares what they answered with the list of deliberate differences."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable

from tests.interop.same_answers.compare import Difference, differences
from tests.interop.same_answers.deliberate import DELIBERATE
from tests.interop.same_answers.talk import Talk


def check_same_answers(addresses: tuple[str, str], scenario: Callable[[Talk], None]) -> None:
    """Fails for a difference without a row in `DELIBERATE`, and for a row without a difference. The first address is
    that of our broker."""
    run = secrets.token_hex(4)
    ours, theirs = Talk(addresses[0], run), Talk(addresses[1], run)
    for talk in (ours, theirs):
        scenario(talk)
        talk.hang_up()
    name = scenario.__name__
    found = list(differences(ours.answers, theirs.answers))
    unexplained = [
        difference for difference in found if not any(_explains(row, name, difference) for row in DELIBERATE)
    ]
    assert not unexplained, f"{len(unexplained)} differences:\n" + "\n".join(map(str, unexplained))
    stale = [
        row
        for row in DELIBERATE
        if re.fullmatch(row.scenario, name) and not any(_explains(row, name, difference) for difference in found)
    ]
    assert not stale, f"no longer different: {stale}"


_VERSION = re.compile(r"( \[v\d+\])?( \(\d+\))?$")


def _explains(row: tuple[str, str, str, str], scenario: str, difference: Difference) -> bool:
    label = _VERSION.sub("", difference.label)
    return all(
        re.fullmatch(pattern, text) for pattern, text in zip(row[:3], (scenario, label, difference.path), strict=True)
    )
