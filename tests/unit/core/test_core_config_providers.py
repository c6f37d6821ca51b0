"""Config providers: references are replaced, limits hold, and errors name the reference and never the secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.core.config_providers import ConfigProviderError, ConfigProviders, is_reference

FILE = {"config.providers": "file", "config.providers.file.class": "FileConfigProvider"}


def test_config_providers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_PASSWORD", "from the environment")
    (tmp_path / "db.properties").write_text("password=from a file\n")
    (tmp_path / "password").write_text("from a directory")
    providers = ConfigProviders(
        {
            "config.providers": "env, file,dir",
            "config.providers.env.class": "EnvVarConfigProvider",
            "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
            "config.providers.dir.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
        }
    )
    assert providers.resolve(
        {
            "a": "${env:THE_PASSWORD}",
            "b": f"<${{file:{tmp_path}/db.properties:password}}>",
            "c": f"${{dir:{tmp_path}:password}}",
            "d": "${topic}-${vault:x:y}",
        }
    ) == {"a": "from the environment", "b": "<from a file>", "c": "from a directory", "d": "${topic}-${vault:x:y}"}
    for text in (
        "${env:NO_SUCH}",
        f"${{file:{tmp_path}/db.properties:user}}",
        "${file:/no/such:key}",
        "${dir:/x:../y}",
    ):
        with pytest.raises(ConfigProviderError, match="a: the reference"):
            providers.resolve({"a": text})
    with pytest.raises(ConfigProviderError, match=r"config\.providers\.x\.class must be one of"):
        ConfigProviders({"config.providers": "x"})


def test_a_file_that_is_no_text_is_named_as_the_reason(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"\xff\xfe secret")
    with pytest.raises(ConfigProviderError, match=r"cannot be resolved: the file is not text in UTF-8$"):
        ConfigProviders(FILE).resolve({"a": f"${{file:{tmp_path}/secret:password}}"})


def test_a_strict_caller_gets_an_error_for_an_unknown_provider() -> None:
    with pytest.raises(ConfigProviderError, match=r"there is no config provider 'vault'.*now: file"):
        ConfigProviders(FILE).resolve({"a": "${vault:x:y}"}, is_strict=True)
    assert ConfigProviders(FILE).resolve({"a": "$5 and ${topic}"}, is_strict=True) == {"a": "$5 and ${topic}"}


def test_only_allowed_paths_are_read(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "a.properties").write_text("password=inside\n")
    (tmp_path / "b.properties").write_text("password=outside\n")
    (secrets / "link.properties").symlink_to(tmp_path / "b.properties")
    (tmp_path / "secrets-too").mkdir()
    (tmp_path / "secrets-too" / "c.properties").write_text("password=outside\n")
    providers = ConfigProviders({**FILE, "config.providers.file.param.allowed.paths": f"/none, {secrets}/"})
    assert providers.resolve({"a": f"${{file:{secrets}/a.properties:password}}"}) == {"a": "inside"}
    for path in ("../b.properties", "link.properties", "../secrets-too/c.properties"):
        with pytest.raises(ConfigProviderError, match=r"allowed\.paths does not allow this path"):
            providers.resolve({"a": f"${{file:{secrets}/{path}:password}}"})


def test_only_allowed_variables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINK_PASSWORD", "one")
    monkeypatch.setenv("OTHER_LINK_PASSWORD", "two")
    properties = {"config.providers": "env", "config.providers.env.class": "EnvVarConfigProvider"}
    pattern = "config.providers.env.param.allowlist.pattern"
    providers = ConfigProviders({**properties, pattern: "LINK_.*"})
    assert providers.resolve({"a": "${env:LINK_PASSWORD}"}) == {"a": "one"}
    with pytest.raises(ConfigProviderError, match=r"allowlist\.pattern does not allow the environment variable"):
        providers.resolve({"a": "${env:OTHER_LINK_PASSWORD}"})
    with pytest.raises(ConfigProviderError, match="is not a regular expression"):
        ConfigProviders({**properties, pattern: "("})


@pytest.mark.parametrize(
    ("text", "expected"),
    [("${env:A}", True), ("${file:/a:b}", True), ('password="${env:A}"', False), ("${a}", False), ("${env:A}b", False)],
)
def test_is_reference(text: str, expected: bool) -> None:
    assert is_reference(text) is expected
