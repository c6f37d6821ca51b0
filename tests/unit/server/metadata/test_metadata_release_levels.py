"""The feature levels of Kafka's releases."""

from __future__ import annotations

import pytest

from barnabas.server.metadata.features import DEFAULT_LEVELS, METADATA_VERSION_NAMES, levels_of_release


def test_the_newest_release_has_the_levels_of_a_new_cluster() -> None:
    newest = METADATA_VERSION_NAMES[max(METADATA_VERSION_NAMES)]
    assert levels_of_release(newest.partition("-")[0]) == levels_of_release(newest) == DEFAULT_LEVELS


def test_earlier_releases_have_lower_levels() -> None:
    assert levels_of_release("3.9") == {"metadata.version": 21}
    assert levels_of_release("4.0-IV0") == {"metadata.version": 22, "group.version": 1}
    assert levels_of_release("4.1") == {
        "metadata.version": 27,
        "group.version": 1,
        "transaction.version": 2,
        "eligible.leader.replicas.version": 1,
    }


def test_unknown_releases_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"5 is not a known release\. The releases are 3\.3, 3\.4"):
        levels_of_release("5")
