"""Shell: a Kerberos realm for tests: an unprivileged KDC in a temporary directory, with principals and key tables."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final

import pytest

from barnabas.core.child_processes import start_child
from barnabas.testing.ports import free_ports

REALM: Final = "EXAMPLE.COM"
PROGRAMS: Final = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
_KRB5: Final = """
[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 {realm} = {{
  kdc = 127.0.0.1:{port}
 }}
[domain_realm]
 localhost = {realm}
"""
_KDC: Final = """
[realms]
 {realm} = {{
  database_name = {root}/principal
  key_stash_file = {root}/stash
  acl_file = {root}/acl
  kdc_listen = ""
  kdc_tcp_listen = 127.0.0.1:{port}
  max_life = 1h
 }}
"""


def program(name: str) -> str | None:
    """The path of a program of MIT Kerberos; None if it is not installed."""
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


NEEDS_KERBEROS: Final = (
    pytest.mark.skipif(
        find_spec("gssapi") is None, reason="the extra gssapi is compiled at its installation, and not part of dev"
    ),
    pytest.mark.skipif(
        not all(map(program, PROGRAMS)), reason="MIT Kerberos is not installed (apt-get install krb5-kdc)"
    ),
)
"""For tests that need a Kerberos server: `make kerberos` installs what they need."""


class Kdc:
    """The realm EXAMPLE.COM, as a context manager."""

    def __init__(self, root: Path) -> None:
        self._root = root
        [self._port] = free_ports(1)
        self.config = root / "krb5.conf"
        self.config.write_text(_KRB5.format(realm=REALM, port=self._port))
        (root / "kdc.conf").write_text(_KDC.format(realm=REALM, root=root, port=self._port))
        self.environment: Final = {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(root / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{root}/tickets",
        }
        """What every process of the realm must have in its environment."""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Kdc:
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        self._process = start_child(
            [self._program("krb5kdc"), "-n"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **self.environment},
        )
        self._kadmin("addprinc -pw probe probe")
        deadline = time.monotonic() + 60
        while subprocess.run(
            [self._program("kinit"), "-c", f"FILE:{self._root}/probe", "probe"],
            input=b"probe\n", capture_output=True, env={**os.environ, **self.environment}, check=False,
        ).returncode:  # fmt: skip
            assert self._process.poll() is None, "the KDC has ended"
            assert time.monotonic() < deadline, "the KDC does not answer"
            time.sleep(0.05)  # between two attempts to reach a process that is starting
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def keytab(self, principal: str) -> Path:
        """A key table with a new principal."""
        path = self._root / f"{principal.replace('/', '-')}.keytab"
        self._kadmin(f"addprinc -randkey {principal}")
        self._kadmin(f"ktadd -k {path} {principal}")
        return path

    def kinit(self, principal: str, keytab: Path, cache: Path) -> None:
        """Get a ticket into a cache."""
        self._run("kinit", "-c", f"FILE:{cache}", "-k", "-t", str(keytab), principal)

    def _kadmin(self, query: str) -> None:
        self._run("kadmin.local", "-r", REALM, "-q", query)

    def _run(self, name: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._program(name), *arguments], capture_output=True, env={**os.environ, **self.environment}, check=False
        )
        assert done.returncode == 0, done.stderr.decode()

    @staticmethod
    def _program(name: str) -> str:
        found = program(name)
        assert found is not None, f"{name} is missing: apt-get install krb5-kdc krb5-admin-server krb5-user"
        return found
