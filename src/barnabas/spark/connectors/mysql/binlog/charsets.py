"""Table: the character set of each collation, and the Python codec that decodes it.

Sources: `information_schema.collations` of MariaDB 10.11; MySQL 8.0's manual, "Supported Character Sets and
Collations". A collation of MariaDB's NO PAD family is the number of another one plus 1024.
"""

from __future__ import annotations

import codecs
from typing import Final

from barnabas.spark.connectors.mysql.errors import UnsupportedBinlogError

BINARY_COLLATION: Final = 63
LATIN1: Final = "mysql-latin1"
"""MySQL's latin1 is Windows-1252, with the five bytes that Windows leaves undefined as control characters."""

_ENCODINGS: Final[dict[str, tuple[int, ...]]] = {
    "big5": (1, 84),
    "latin-2": (2, 9, 21, 27, 77),
    "cp850": (4, 80),
    LATIN1: (5, 8, 15, 31, 47, 48, 49, 94),
    "koi8-r": (7, 74),
    "ascii": (11, 65),
    "euc-jp": (12, 91, 97, 98),
    "cp932": (13, 88, 95, 96),
    "cp1251": (14, 23, 50, 51, 52),
    "iso8859-8": (16, 71),
    "tis-620": (18, 89),
    "euc-kr": (19, 85),
    "iso8859-13": (20, 41, 42, 79),
    "koi8-u": (22, 75),
    "gb2312": (24, 86),
    "iso8859-7": (25, 70),
    "cp1250": (26, 34, 44, 66, 99),
    "gbk": (28, 87),
    "cp1257": (29, 58, 59),
    "iso8859-9": (30, 78),
    "utf-8": (
        33,
        83,
        45,
        46,
        76,
        *range(192, 224),
        *range(224, 248),
        *range(255, 324),
        *range(576, 579),
        *range(608, 611),
    ),
    "utf-16-be": (35, 90, 54, 55, *range(101, 125), *range(128, 152), 159, *range(640, 643), *range(672, 675)),
    "cp866": (36, 68),
    "mac-latin2": (38, 43),
    "mac-roman": (39, 53),
    "cp852": (40, 81),
    "utf-16-le": (56, 62),
    "cp1256": (57, 67),
    "utf-32-be": (60, 61, *range(160, 184), *range(736, 739)),
    "gb18030": (248, 249, 250),
    "hp-roman8": (6, 72),
}
_ENCODING_OF: Final = {collation: name for name, collations in _ENCODINGS.items() for collation in collations}
_NO_PAD: Final = 1024
_UCA1400: Final = (("utf-8", 2048, 2304), ("utf-8", 2304, 2560), ("utf-16-be", 2560, 3072), ("utf-32-be", 3072, 3328))
"""MariaDB 10.10's UCA-1400 collations: 256 numbers each for utf8mb3, utf8mb4, ucs2, utf16, utf32."""


def python_encoding(collation: int, where: str) -> str:
    """The Python codec of a collation's character set, or LATIN1. 0, an unknown collation, is read as UTF-8.

    Raises UnsupportedBinlogError for a character set that Python does not have.
    """
    if collation in (0, BINARY_COLLATION):
        return "utf-8"
    for encoding, first, end in _UCA1400:
        if first <= collation < end:
            return encoding
    number = collation - _NO_PAD if _NO_PAD <= collation < 2 * _NO_PAD else collation
    encoding_or_none = _ENCODING_OF.get(number)
    if encoding_or_none is None:
        raise UnsupportedBinlogError(
            f"{where}: Barnabas cannot decode the character set of collation {collation} (SELECT * FROM "
            f"information_schema.collations WHERE id = {collation}). Run ALTER TABLE ... CONVERT TO CHARACTER SET "
            "utf8mb4, or exclude the table"
        )
    return encoding_or_none


def _latin1_gaps(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error("barnabas-latin1", _latin1_gaps)


def contains_ascii(encoding: str) -> bool:
    """Whether a text of ASCII characters has the same bytes in this codec as in ASCII."""
    characters = bytes(range(128))
    try:
        return decode_text(characters, encoding) == characters.decode("ascii")
    except UnicodeDecodeError:
        return False


def decode_text(raw: bytes, encoding: str) -> str:
    """Decode bytes of a column. Raises UnicodeDecodeError."""
    if encoding == LATIN1:
        return raw.decode("cp1252", "barnabas-latin1")
    return raw.decode(encoding)
