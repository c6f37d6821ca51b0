"""Texts of security settings, read by Apache Kafka's classes and by ours: login modules, and the names of clients."""

from __future__ import annotations

import base64
import random
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from barnabas.core.errors import BarnabasError
from barnabas.protocol.security.distinguished_names import subject_name
from barnabas.protocol.security.jaas import parse_jaas
from barnabas.protocol.security.kerberos.names import KerberosShortNamer, parse_kerberos_name
from barnabas.protocol.security.principal_mapping import PrincipalMapper
from tests.interop.jars import kafka_classpath
from tests.unit.protocol.security.test_security_certificate_names import SUBJECTS, certificate_of

REFUSED = None
Form = tuple[str | bytes, ...]

NAMES = (
    "CN=Duke,OU=ServiceUsers,O=Org,C=US",
    "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US",
    "cn=duke,ou=sme,dc=mycp,dc=com",
    "cN=duke,OU=JavaSoft,O=Sun Microsystems",
    "OU=JavaSoft,O=Sun Microsystems,C=US",
    "CN=Tkac\\, Adam,OU=ITZ,DC=geodis,DC=cz",
    "CN=Zoë",
    "CN=İ",
    "",
)
RULES = (
    "DEFAULT",
    "",
    ",   , , ,      , , ,   ",
    "default",
    "DEFAULT/L",
    "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
    "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
    "RULE://,DEFAULT",
    "  RULE:   /     / ,  DEFAULT  ",
    ",,RULE://,,,DEFAULT,,",
    r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT",
    "RULE:CN=(.*?)/$1/,DEFAULT",
    "RULE:CN=(.*?),.*/$1-/,DEFAULT",
    "RULE:(.*)/u-$1/",
    "RULE:.*/x/",
    "RULE:.+/x/",
    "RULE:^CN=(.*?),.*$/$0/,DEFAULT",
    "RULE:^CN=(.*?),.*$/$1$9/,DEFAULT",
    "RULE:^CN=(.*?),.*$/$12/,DEFAULT",
    "RULE:^CN=(.*?),.*$/$01/,DEFAULT",
    r"RULE:^CN=(.*?),.*$/\$1\/\\/,DEFAULT",
    "RULE:^CN=(x)?(.*?),.*$/<$1>$2/,DEFAULT",
    "RULE:(?i)^cn=(.*?),.*$/$1/U,DEFAULT",
    "RULE:(?i)^CN=ZOË$/zoe/,DEFAULT",
    r"RULE:^CN=(\w+)$/$1/,DEFAULT",
    "RULE:^CN=(.*)$/$1/L,DEFAULT",
    "RULE:(/b/",
    "RULE:.*/$1/",
    "RULE:(.*)/$x/",
    "RULE:(.*)/${x}/",
)
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = (
    f"{_MODULE} required;",
    f"{_MODULE} REQUISITE;",
    f"{_MODULE} Sufficient a=b;",
    f"{_MODULE} optional a=b c=d;",
    f'{_MODULE} required a="prop value" b="value1 = 1, value2 = 2";',
    f'{_MODULE} required "prop name"=propValue;',
    f"{_MODULE} required a='single';",
    f'{_MODULE} required a="";',
    f'{_MODULE} required a="it\'s" b=\'say "x"\';',
    f'{_MODULE} required a="\\"q\\"" b="\\\\" c="\\101\\t";',
    f'{_MODULE} required\n  a="b" // a comment\n /* another\n one */ c="d" ;',
    f'{_MODULE} required a = "b";',
    f'{_MODULE} required a="b"c="d";',
    f'{_MODULE} required a="ü€";',
    f"{_MODULE} required a=b.c-d_e$;",
    f"{_MODULE} required a=b a=c;",
    "",
    " ",
    _MODULE,
    f"{_MODULE} maybe;",
    f"{_MODULE} {{ a=b;",
    f"{_MODULE} required a=b",
    f"{_MODULE} required a;",
    f"{_MODULE} required a=;",
    f"{_MODULE} required =b;",
    f"{_MODULE} a=b;",
    f"{_MODULE} required; {_MODULE} required;",
    "  required a=b;",
)
UNLIKE_KAFKA: dict[Form, str] = {
    ("REALM.COM", "RULE:[1:$3]", name): "the rule is refused when the node starts, not when a client needs it"
    for name in ("alice", "alice/host")
}
"""Texts that we read otherwise, with the reason."""


@pytest.fixture(scope="module")
def kafka() -> Callable[[str, Sequence[Form]], list[str | None]]:
    source = Path(__file__).parent / "java" / "SecurityForms.java"

    def read(kind: str, forms: Sequence[Form]) -> list[str | None]:
        """What Kafka reads; None for a text that it refuses."""
        lines = [" ".join((kind, *map(_encoded, form))) for form in forms]
        command = ["java", "-XX:TieredStopAtLevel=1", "-cp", kafka_classpath(), str(source)]
        given = "".join(f"{line}\n" for line in lines)
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=120, check=True)
        answers = [line.split(" ") for line in done.stdout.splitlines() if line.startswith(("ok ", "refused "))]
        return [base64.b64decode(text).decode() if outcome == "ok" else REFUSED for outcome, text in answers]

    return read


def _encoded(part: str | bytes) -> str:
    return base64.b64encode(part if isinstance(part, bytes) else part.encode()).decode()


def _check(theirs: list[str | None], ours: Callable[..., str], forms: Sequence[Form]) -> None:
    different = []
    for form, expected in zip(forms, theirs, strict=True):
        try:
            got: str | None = ours(*form)
        except BarnabasError:
            got = REFUSED
        if (got != expected) != (form in UNLIKE_KAFKA):
            different.append(f"{form}\n    ours   {got!r}\n    kafka  {expected!r}")
    assert not different, f"{len(different)} of {len(forms)}:\n" + "\n".join(different)


def _jaas(text: str) -> str:
    entry = parse_jaas(text)
    options = [f"{name}={value}" for name, value in sorted(entry.options.items())]
    return "\n".join((entry.login_module, entry.flag, *options))


def test_certificates_are_mapped_to_the_principals_of_kafka(kafka: Callable[..., list[str | None]]) -> None:
    forms: list[Form] = [(rules, name) for rules in RULES for name in NAMES]
    forms += _drawn_rules(random.Random(7), 400)
    _check(kafka("principal", forms), lambda rules, name: PrincipalMapper(rules).user_name(name), forms)


def test_subjects_of_certificates_are_written_as_in_java(kafka: Callable[..., list[str | None]]) -> None:
    forms: list[Form] = [(certificate_of(*parts),) for parts, _ in SUBJECTS]
    _check(kafka("subject", forms), subject_name, forms)


def test_login_modules_are_read_as_in_kafka(kafka: Callable[..., list[str | None]]) -> None:
    forms: list[Form] = [(text,) for text in JAAS]
    _check(kafka("jaas", forms), _jaas, forms)


def test_kerberos_principals_get_the_names_of_kafka(kafka: Callable[..., list[str | None]]) -> None:
    rules = (
        "DEFAULT",
        "RULE:[1:$1]",
        "RULE:[2:$1]",
        "RULE:[1:$1@$0]",
        "RULE:[2:$1.$2]/U",
        r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g/L",
        r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g",
        "RULE:[1:$1]s/a/b/",
        "RULE:[1:$1]s/a/b/g",
        "RULE:[1:$1](.*)s/.*/x/g",
        "RULE:[1:$1@$0](.*@OTHER)s/@.*//",
        "RULE:[1:$3]",
        "RULE:[1]",
        "rule:[1:$1]",
        "RULE:[1:$1](",
        "RULE:[1:$1]s/(a)/$1$1/",
        "RULE:[1:$1]/L",
        "RULE:[1:$1]/X",
        "RULE:[2:$1](ABC.*)s/ABC/XYZ/g/L\nDEFAULT",
    )
    principals = (
        "alice@REALM.COM",
        "alice@OTHER",
        "App.Banana/host@REALM.COM",
        "App.Banana@REALM.COM",
        "ABC/host@OTHER",
        "alice",
        "alice/host",
        "a/b/c@REALM.COM",
        "a@b@REALM.COM",
    )
    forms: list[Form] = [("REALM.COM", rule, principal) for rule in rules for principal in principals]

    def ours(realm: str, rule: str, principal: str) -> str:
        return KerberosShortNamer(realm, rule.split("\n")).short_name(parse_kerberos_name(principal))

    _check(kafka("kerberos", forms), ours, forms)


def _drawn_rules(rng: random.Random, count: int) -> list[Form]:
    """Rules of parts that users write, with names that they may match. No reference occurs twice, because Kafka
    misplaces the second one of two that have no group."""
    patterns = ("^", "CN=", "(.*?)", "(.*)", "([^,]*)", ",", "OU=", ".*", "$", "(\\w+)", "[a-z]+", "x?", "(a|b)?")
    targets = ("$1", "$2", "$0", "@", "u", "\\/", "$10", "-")
    forms: list[Form] = []
    for _ in range(count):
        pattern = "".join(rng.choices(patterns, k=rng.randrange(1, 6)))
        target = "".join(rng.sample(targets if "(" in pattern else ("u", "-", "$0"), k=rng.randrange(0, 3)))
        rules = f"RULE:{pattern}/{target}/{rng.choice(('', 'L', 'U'))}{rng.choice(('', ',DEFAULT'))}"
        forms.append((rules, rng.choice(NAMES)))
    return forms
