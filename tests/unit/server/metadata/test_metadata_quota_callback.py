"""client.quota.callback.class: the class of a user computes the quotas of clients."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from barnabas.core.config import ConfigError
from barnabas.protocol.security.principals import KafkaPrincipal
from barnabas.protocol.security.quotas.limits import QuotaEntity, QuotaKind, QuotaLimits
from barnabas.protocol.security.quotas.manager import ClientQuotaManager
from barnabas.protocol.security.quotas.rates import QuotaWindows
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.quota_callback import SETTING, CallbackLimits, build_limits

KIND = QuotaKind.PRODUCE
T0 = 1_700_000_000_000


class ByTeam:
    """Users of a team, the part of the name before the first dot, share the quota of the user with the team's name."""

    made: list[ByTeam] = []  # noqa: RUF012 - so that the tests can find the objects

    def __init__(self, configs: Mapping[str, str]) -> None:
        self.configs = configs
        self.limits: dict[tuple[str, str | None], float] = {}
        self.events: list[Any] = []
        self.images: list[ClusterImage] = []
        ByTeam.made.append(self)

    def quota_metric_tags(self, kind: QuotaKind, principal: KafkaPrincipal, client_id: str) -> Mapping[str, str]:
        return {"team": principal.name.partition(".")[0]}

    def quota_limit(self, kind: QuotaKind, tags: Mapping[str, str]) -> float | None:
        return self.limits.get((kind.value, tags["team"]))

    def update_quota(self, kind: QuotaKind, entity: QuotaEntity, value: float) -> None:
        self.events.append((kind.value, entity, value))
        self.limits[kind.value, dict(entity)["user"]] = value

    def remove_quota(self, kind: QuotaKind, entity: QuotaEntity) -> None:
        self.events.append((kind.value, entity, None))
        self.limits.pop((kind.value, dict(entity)["user"]), None)

    def update_cluster_metadata(self, image: ClusterImage) -> None:
        self.images.append(image)


def built(**configs: str) -> tuple[CallbackLimits, ByTeam]:
    limits = build_limits({SETTING: f"{__name__}:ByTeam", **configs})
    assert isinstance(limits, CallbackLimits)
    return limits, ByTeam.made[-1]


def user(name: str) -> KafkaPrincipal:
    return KafkaPrincipal("User", name)


def test_without_a_class_the_quotas_of_the_cluster_hold() -> None:
    assert isinstance(build_limits({}), QuotaLimits)


def test_clients_with_the_same_tags_share_a_limit() -> None:
    limits, _ = built()
    limits.change({(("user", "red"),): {KIND.value: 100.0}})
    manager = ClientQuotaManager(KIND, limits, QuotaWindows())
    assert manager.record(user("red.alice"), "c", 900, T0) == 0
    assert manager.record(user("red.bob"), "d", 300, T0) > 0, "1200 bytes in ten seconds"
    assert manager.record(user("blue.carol"), "c", 9_000, T0) == 0
    assert manager.most_at_once(user("red.alice"), "c") == 1000
    assert manager.most_at_once(user("blue.carol"), "c") is None


def test_the_class_gets_each_quota_that_changes() -> None:
    limits, team = built(own="setting")
    red, default = (("user", "red"),), (("user", None),)
    limits.change(
        {red: {KIND.value: 5.0, "request_percentage": 2.0}, (("ip", "::1"),): {"connection_creation_rate": 1}}
    )
    limits.change({red: {KIND.value: 5.0, "consumer_byte_rate": 7.0}, default: {KIND.value: 1.0}})
    limits.change({red: None, default: {}})
    assert team.configs["own"] == "setting"
    assert team.events == [
        (KIND.value, red, 5.0),
        ("request_percentage", red, 2.0),
        ("request_percentage", red, None),
        ("consumer_byte_rate", red, 7.0),
        (KIND.value, default, 1.0),
        (KIND.value, red, None),
        ("consumer_byte_rate", red, None),
        (KIND.value, default, None),
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("org.apache.kafka.server.quota.Mine", "is a class of Apache Kafka. Use a Python class"),
        ("Mine", "expected a Python class"),
        ("no_such_module:Mine", "cannot be imported"),
        ("barnabas.core.errors:Mine", "has no class Mine"),
        ("builtins:dict", "lacks quota_metric_tags, quota_limit"),
    ],
)
def test_a_wrong_class_is_refused_with_the_reason(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_limits({SETTING: name})


def test_the_class_of_the_security_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[4] / "docs" / "SECURITY.md").read_text(encoding="utf-8")
    code = page.partition("### Quotas of your own")[2].partition("```python\n")[2].partition("```")[0]
    (tmp_path / "company_quotas.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    limits = build_limits({SETTING: "company_quotas:Quotas"})
    limits.change({(("user", "red"),): {KIND.value: 100.0}})
    assert limits.limit(KIND, limits.bucket(KIND, user("red.alice"), "c")) == 100
    assert limits.limit(KIND, limits.bucket(KIND, user("blue.bob"), "c")) is None
    limits.change({(("user", "red"),): None})
    assert limits.limit(KIND, limits.bucket(KIND, user("red.alice"), "c")) is None
