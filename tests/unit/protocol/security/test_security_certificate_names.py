"""The principal of a client certificate: the subject as Java writes it, and ssl.principal.mapping.rules."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from barnabas.core.config import ConfigError
from barnabas.protocol.security.distinguished_names import CertificateError, subject_name
from barnabas.protocol.security.principal_mapping import NoMatchingRuleError, PrincipalMapper


def certificate_of(*parts: tuple[x509.ObjectIdentifier, str]) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(oid, value) for oid, value in parts])
    begin = datetime.datetime(2026, 1, 1)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")]))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.DER)


SUBJECTS: list[tuple[list[tuple[x509.ObjectIdentifier, str]], str]] = [
    ([(NameOID.COUNTRY_NAME, "DE"), (NameOID.COMMON_NAME, "alice")], "CN=alice,C=DE"),
    ([(NameOID.COMMON_NAME, "a,b=c;d+e")], r"CN=a\,b\=c\;d\+e"),
    ([(NameOID.COMMON_NAME, ' "x\\y" ')], r"CN=\ \"x\\y\"\ "),
    ([(NameOID.COMMON_NAME, "Zoë")], "CN=Zoë"),
    ([(NameOID.EMAIL_ADDRESS, "a@b.c"), (NameOID.COMMON_NAME, "x")], "CN=x,1.2.840.113549.1.9.1=#16056140622e63"),
    ([(NameOID.DOMAIN_COMPONENT, "org"), (NameOID.USER_ID, "u1")], "UID=u1,DC=org"),
    ([], ""),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "expected"), SUBJECTS)
def test_the_subject_is_written_as_java_writes_it(
    parts: list[tuple[x509.ObjectIdentifier, str]], expected: str
) -> None:
    assert subject_name(certificate_of(*parts)) == expected


def test_a_truncated_certificate_is_refused() -> None:
    der = certificate_of((NameOID.COMMON_NAME, "alice"))
    for size in range(min(len(der), 160)):
        with pytest.raises(CertificateError):
            subject_name(der[:size])


_DN = "CN=Duke, OU=ServiceUsers, O=Org, C=US"


@pytest.mark.parametrize(
    ("rules", "name", "expected"),
    [
        ("DEFAULT", "CN=Duke,OU=x", "CN=Duke,OU=x"),
        (",, DEFAULT,,", "CN=Duke,OU=x", "CN=Duke,OU=x"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,DEFAULT", "CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,DEFAULT", "CN=Duke,OU=Other", "CN=Duke,OU=Other"),
        ("RULE:^CN=(.*?), OU=(.*?), O=(.*?), C=(.*?)$/$1@$2/L", _DN, "duke@serviceusers"),
        ("RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U", "cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("RULE:^CN=(.*?),.*$/$1$9/", "CN=a,b", "a$9"),
        (r"RULE:^CN=([^\/]*)$/a\/$1/", "CN=x", "a/x"),
        ("RULE:^x$/y/,\n RULE:^CN=(.*)$/$1/U", "CN=ab", "AB"),
        ("RULE:^CN=(.*?),.*$/$12/", "CN=a,b", "a2"),
        ("RULE:^CN=(.*?),.*$/<$0>/", "CN=a,b", "<CN=a,b>"),
        ("RULE:CN=(.*?),OU=(.*?)/$1@$2/", "CN=a,OU=b", "a@b"),
        ("RULE:(.*)/u-$1/", "CN=a", "u-CN=au-"),
        ("RULE:(.*?)/-/", "CN", "-C-N-"),
        (r"RULE:^CN=(\w+)$/$1/,DEFAULT", "CN=Zoë", "CN=Zoë"),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_decides(rules: str, name: str, expected: str) -> None:
    assert PrincipalMapper(rules).user_name(name) == expected


def test_a_name_without_a_rule_has_no_principal() -> None:
    with pytest.raises(NoMatchingRuleError, match="CN=other"):
        PrincipalMapper("RULE:^CN=(alice)$/$1/").user_name("CN=other")
    with pytest.raises(NoMatchingRuleError, match="CN=other"):
        PrincipalMapper("").user_name("CN=other")


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "RULE:",
        "RULE:a",
        "RULE:a/b",
        "RULE:a/b/X",
        "RULE:(/b/",
        "DEFAULT DEFAULT",
        "RULE:a/$1/",
        "RULE:(a)/$x/",
        "RULE:(a)/${n}/",
    ],
)
def test_a_malformed_rule_is_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalMapper(rules)
