"""Codec: the subject of an X.509 certificate (DER) as the text of RFC 2253 that Java's `X500Principal.getName` returns.

    Certificate ::= [ tbsCertificate [ [0] version, serial, signature, issuer, validity, subject ... ] ... ]
    subject     ::= SEQUENCE of SET of SEQUENCE { OBJECT IDENTIFIER, string }

The last part of the name comes first: `CN=alice,OU=payments,O=example`. Kafka's principals and the rules of
`ssl.principal.mapping.rules` are written in this form, so ACLs and rules of an Apache Kafka cluster keep their meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from barnabas.core.errors import BarnabasError

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attribute types that RFC 2253 names. All other types are written as numbers, and their values in hexadecimal."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_SEQUENCE, _SET, _OID, _VERSION = 0x30, 0x31, 0x06, 0xA0
_EXTENSIONS, _OCTET_STRING, _UTC_TIME = 0xA3, 0x04, 0x17
_ALTERNATIVE_NAMES: Final = "2.5.29.17"
_GENERAL_NAMES: Final = {0x81: "email", 0x82: "DNS", 0x86: "URI", 0x87: "IP"}
_CODECS: Final = {
    0x0C: "utf-8",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1B: "ascii",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}
"""The tags of ASN.1's string types, and the encodings of their text."""


class CertificateError(BarnabasError):
    """The bytes are not a certificate whose subject can be read."""


def subject_name(certificate: bytes) -> str:
    """The subject of a certificate in DER form. Raises CertificateError."""
    try:
        tbs = next(_elements(_content(certificate, _SEQUENCE)))
        fields = list(_elements(_content(tbs, _SEQUENCE)))
        if fields[0][0] == _VERSION:
            del fields[0]
        return _name(fields[4])
    except (IndexError, StopIteration, UnicodeDecodeError) as error:
        raise CertificateError("The certificate is not valid DER: its subject cannot be read.") from error


def alternative_names(certificate: bytes) -> frozenset[str]:
    """The subject alternative names of a certificate in DER form, such as `DNS:localhost`, `IP:7f000001`. Raises
    CertificateError."""
    try:
        fields = _elements(_content(next(_elements(_content(certificate, _SEQUENCE))), _SEQUENCE))
        for field in fields:
            if field[0] == _EXTENSIONS:
                for extension in _elements(_content(_content(field, _EXTENSIONS), _SEQUENCE)):
                    parts = list(_elements(_content(extension, _SEQUENCE)))
                    if _oid(_content(parts[0], _OID)) == _ALTERNATIVE_NAMES:
                        names = _content(_content(parts[-1], _OCTET_STRING), _SEQUENCE)
                        return frozenset(map(_general_name, _elements(names)))
    except (IndexError, StopIteration, UnicodeDecodeError) as error:
        raise CertificateError("The certificate is not valid DER: its extensions cannot be read.") from error
    return frozenset()


def expires_at(certificate: bytes) -> datetime:
    """The end of the validity of a certificate in DER form, in UTC. Raises CertificateError."""
    try:
        fields = list(_elements(_content(next(_elements(_content(certificate, _SEQUENCE))), _SEQUENCE)))
        if fields[0][0] == _VERSION:
            del fields[0]
        end = list(_elements(_content(fields[3], _SEQUENCE)))[1]
        text = _content(end, end[0]).decode("ascii")
        # RFC 5280: UTCTime has two digits for the year, from 1950 to 2049; both times end with Z.
        if end[0] == _UTC_TIME:
            text = ("19" if text >= "50" else "20") + text
        return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    except (IndexError, StopIteration, ValueError) as error:
        raise CertificateError("The certificate is not valid DER: its validity cannot be read.") from error


def _general_name(name: bytes) -> str:
    content = _content(name, name[0])
    kind = _GENERAL_NAMES.get(name[0])
    if kind is None:
        return f"{name[0] & 0x1F}:{content.hex()}"
    return f"{kind}:{content.hex() if kind == 'IP' else content.decode('latin-1')}"


def _name(name: bytes) -> str:
    parts = [
        "+".join(_attribute(attribute) for attribute in _elements(_content(relative, _SET)))
        for relative in _elements(_content(name, _SEQUENCE))
    ]
    return ",".join(reversed(parts))


def _attribute(attribute: bytes) -> str:
    kind, value = list(_elements(_content(attribute, _SEQUENCE)))[:2]
    oid = _oid(_content(kind, _OID))
    keyword = _KEYWORDS.get(oid)
    codec = _CODECS.get(value[0])
    if keyword is None or codec is None:
        return f"{keyword or oid}=#{value.hex()}"
    text = _content(value, value[0]).decode(codec)
    escaped = "".join("\\" + char if char in _ESCAPED else "\\00" if char == "\0" else char for char in text)
    body = escaped.strip(" ")
    leading = len(escaped) - len(escaped.lstrip(" "))
    trailing = len(escaped) - len(body) - leading
    return f"{keyword}=" + "\\ " * leading + body + "\\ " * trailing


def _oid(content: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def _elements(content: bytes) -> Iterator[bytes]:
    """The elements of a sequence or set, each with its tag and length."""
    start = 0
    while start < len(content):
        end = _end(content, start)[1]
        yield content[start:end]
        start = end


def _content(element: bytes, tag: int) -> bytes:
    if element[0] != tag:
        raise CertificateError(f"The certificate is not valid DER: tag {element[0]} where tag {tag} is expected.")
    start, end = _end(element, 0)
    return element[start:end]


def _end(data: bytes, start: int) -> tuple[int, int]:
    """The offsets of the content of the element at `start`, and of the element's end."""
    size = data[start + 1]
    begin = start + 2
    if size & 0x80:
        count = size & 0x7F
        size = int.from_bytes(data[begin : begin + count], "big")
        begin += count
    if begin + size > len(data):
        raise CertificateError(f"The certificate is truncated: an element of {size} bytes at offset {begin}.")
    return begin, begin + size
