"""Completion of command lines, and the help of `serve`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.cli.app import given_noun
from barnabas.cli.completing import complete_words
from barnabas.cli.contexts import Contexts
from barnabas.testing import EmbeddedBroker
from tests.progress import wait_until


def completed(*words: str, **environment: str) -> set[str]:
    """What bash would offer for the last word."""
    done = subprocess.run(
        [sys.executable, "-m", "barnabas"],
        env={
            **os.environ, **environment, "_BARNABAS_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(["barnabas", *words]), "COMP_CWORD": str(len(words)),
        },
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stderr == ""
    return set(done.stdout.split())


def test_commands_and_options() -> None:
    assert completed("top") == {"top", "topics"}
    assert completed("topics", "de") == {"describe", "delete"}
    assert completed("serve", "--log-f") == {"--log-format", "--log-file", "--log-file-mib", "--log-files"}
    assert completed("serve", "--log-format", "") == {"text", "json"}


def test_names_of_the_cluster_and_of_contexts(tmp_path: Path) -> None:
    Contexts(tmp_path).write("prod", {"bootstrap.servers": "prod:1"})
    Contexts(tmp_path).write("test", {"bootstrap.servers": "127.0.0.1:1"})
    folder = {"BARNABAS_CONFIG_DIR": str(tmp_path)}
    assert completed("context", "use", "p", **folder) == {"prod"}
    assert completed("--context", "", **folder) == {"prod", "test"}
    assert completed("--context", "test", "consume", "o", **folder) == set(), "a cluster that does not answer"
    with EmbeddedBroker() as broker:
        subprocess.run(
            [sys.executable, "-m", "barnabas", "topics", "create", "orders", "-b", broker.bootstrap_servers],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip
        # A broker that does not answer within two seconds completes nothing, so on a busy machine the shell asks again.
        servers = broker.bootstrap_servers
        wait_until(lambda: completed("consume", "-b", servers, "o") == {"orders"}, "the topic is completed")
        Contexts(tmp_path).write("test", {"bootstrap.servers": broker.bootstrap_servers})
        describe = ("--context", "test", "topics", "describe", "")
        wait_until(lambda: completed(*describe, **folder) == {"orders"}, "the topic of the context is completed")


@pytest.mark.parametrize(
    ("line", "noun"),
    [
        ("barnabas ", ""), ("barnabas top", ""), ("barnabas topics ", "topics"), ("barnabas topics li", "topics"),
        ("barnabas --context a topics ", "topics"),
    ],
)  # fmt: skip
def test_the_noun_counts_when_it_is_complete(line: str, noun: str) -> None:
    for variable in ("COMP_WORDS", "_TYPER_COMPLETE_ARGS"):
        assert given_noun(complete_words({variable: line})) == noun


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_that_the_shell_reads(shell: str) -> None:
    command = [sys.executable, "-m", "barnabas", "completion", shell]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert f"_BARNABAS_COMPLETE=complete_{shell}" in text
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=text, text=True, check=True, timeout=60)


def test_serve_has_help_in_the_style_of_the_other_commands() -> None:
    for flag in ("-h", "--help"):
        command = [sys.executable, "-m", "barnabas", "serve", flag]
        text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
        assert "╭─ Options" in text
        assert "--data-dir" in text
