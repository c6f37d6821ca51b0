"""Our assignors and Java's give the same result for the same input (see JavaAssignors.java).

Left out are inputs for which Java's general sticky algorithm gives a member a topic it does not subscribe to.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.protocol.assign.table import CLASSIC_ASSIGNORS
from tests.unit.protocol.assign.assign_cases import read_cases

CASES = list(read_cases((Path(__file__).parent / "java_assignors.txt").read_text()))


@pytest.mark.parametrize("name", sorted(CLASSIC_ASSIGNORS))
def test_same_as_java(name: str) -> None:
    cases = [case for case in CASES if case.assignor == name]
    assert len(cases) >= 50
    for case in cases:
        assigned = CLASSIC_ASSIGNORS[name].assign(*case.inputs())
        assert assigned == case.expected, "\n".join(case.lines())
