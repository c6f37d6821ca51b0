"""The files of deploy/ by their schemas, and what they have to agree on among themselves."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from barnabas.cli.serve.serve import build_parser
from barnabas.server.node.config import unknown_names
from barnabas.server.node.setup.environment import settings_from_environment

DEPLOY = Path(__file__).parents[3] / "deploy"
MANIFEST = DEPLOY / "kubernetes" / "barnabas.yaml"
COMPOSE = DEPLOY / "container" / "compose.yaml"


def documents() -> dict[str, Any]:
    """The Kubernetes objects by their kind; there is one of each."""
    found = {document["kind"]: document for document in yaml.safe_load_all(MANIFEST.read_text())}
    assert len(found) == len(list(yaml.safe_load_all(MANIFEST.read_text())))
    return found


def instructions(name: str) -> list[str]:
    """The arguments of the instructions `name` in the Containerfile."""
    text = (DEPLOY / "container" / "Containerfile").read_text().replace("\\\n", " ")
    return re.findall(rf"^{name} (.+)$", text, re.MULTILINE)


@pytest.mark.parametrize("kind", sorted(documents()))
def test_kubernetes_objects_fit_the_schemas_of_kubernetes(kind: str) -> None:
    kubernetes_validate.validate(documents()[kind], "1.31", strict=True)


def test_a_misspelt_field_does_not_fit() -> None:
    service = documents()["Service"]
    service["spec"]["clusterIp"] = "None"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(service, "1.31", strict=True)


def test_the_compose_file_fits_the_schema_of_compose() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout


def test_settings_in_the_environment_are_known() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    container = documents()["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]
    environments = [service["environment"] for service in services.values()]
    environments += [documents()["ConfigMap"]["data"], {row["name"]: row.get("value", "") for row in container["env"]}]
    for environment in environments:
        assert unknown_names(settings_from_environment(environment)) == []


def test_objects_refer_to_each_other() -> None:
    found = documents()
    spec = found["StatefulSet"]["spec"]
    pod = spec["template"]
    labels = pod["metadata"]["labels"]
    container = pod["spec"]["containers"][0]
    ports = {port["name"] for port in container["ports"]}

    assert spec["serviceName"] == found["Service"]["metadata"]["name"]
    assert found["Service"]["spec"]["publishNotReadyAddresses"] is True
    for selector in (
        spec["selector"]["matchLabels"],
        found["Service"]["spec"]["selector"],
        found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector == labels
    assert container["envFrom"] == [{"configMapRef": {"name": found["ConfigMap"]["metadata"]["name"]}}]
    assert {port["targetPort"] for port in found["Service"]["spec"]["ports"]} <= ports
    assert {p["port"] for rule in found["NetworkPolicy"]["spec"]["ingress"] for p in rule["ports"]} <= ports
    voters = found["ConfigMap"]["data"]["KAFKA_CONTROLLER_QUORUM_VOTERS"].split(",")
    first = spec["ordinals"]["start"]
    assert voters == [
        f"{number}@barnabas-{number}.{spec['serviceName']}:9093" for number in range(first, first + spec["replicas"])
    ]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    claimed = {claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]}
    assert mounted == {volume["name"] for volume in pod["spec"]["volumes"]} | claimed


def test_the_image_runs_a_command_that_exists_as_the_user_of_the_pod() -> None:
    (entry,), (command,), (user,) = instructions("ENTRYPOINT"), instructions("CMD"), instructions("USER")
    assert json.loads(entry) == ["barnabas"]
    pod = documents()["StatefulSet"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["args"] == json.loads(command)
    noun, *options = json.loads(command)
    assert noun == "serve"
    assert build_parser().parse_args(options).env is True
    security = pod["securityContext"]
    assert user == f"{security['runAsUser']}:{security['runAsGroup']}"
    data = [m["mountPath"] for m in pod["containers"][0]["volumeMounts"] if m["name"] == "data"]
    assert [f"BARNABAS_DATA_DIR={path}" for path in data] == [e for e in instructions("ENV") if "DATA_DIR" in e]
    assert instructions("VOLUME") == data
