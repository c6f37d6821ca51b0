"""Table: the character set of each collation, and the Python codec that decodes it.

Texts are decoded as the server converts them to utf8mb4, so that rows of a snapshot and of changes are equal.

Sources: `information_schema.collations` of MariaDB 10.11; MySQL 8.0's manual, "Supported Character Sets and
Collations"; the conversion of all byte sequences to utf8mb4 by MariaDB 10.11 and MySQL 9.7. A collation of MariaDB's
NO PAD family is the number of another one plus 1024.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Final

from barnabas.spark.connectors.mysql.binlog.euc_jp import decode_eucjpms, decode_ujis
from barnabas.spark.connectors.mysql.errors import UnsupportedBinlogError

BINARY_COLLATION: Final = 63
LATIN1: Final = "mysql-latin1"
"""MySQL's latin1 is Windows-1252, with the five bytes that Windows leaves undefined as control characters."""
UJIS: Final = "mysql-ujis"
EUCJPMS: Final = "mysql-eucjpms"
SJIS: Final = "mysql-sjis"

_ENCODINGS: Final[dict[str, tuple[int, ...]]] = {
    "big5": (1, 84),
    "iso8859-2": (2, 9, 21, 27, 77),
    "cp850": (4, 80),
    LATIN1: (5, 8, 15, 31, 47, 48, 49, 94),
    "koi8-r": (7, 74),
    "ascii": (11, 65),
    UJIS: (12, 91),
    EUCJPMS: (97, 98),
    SJIS: (13, 88),
    "cp932": (95, 96),
    "cp1251": (14, 23, 50, 51, 52),
    "iso8859-8": (16, 71),
    "tis-620": (18, 89),
    "cp949": (19, 85),
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
_SIGNS: Final = {
    "cp866": str.maketrans("\u2116\u00a4", "\u207f\u00b2"),
    "iso8859-7": str.maketrans("\u2018\u2019", "\u02bd\u02bc"),
    "iso8859-8": str.maketrans("\u00af", "\u203e"),
    "koi8-u": str.maketrans("\u2219", "\u2022"),
}
"""Characters of Python's codecs that the servers convert to others."""
_SJIS_SIGNS: Final = str.maketrans(
    "\uff3c\uff5e\u2225\uff0d\uffe0\uffe1\uffe2", "\\\u301c\u2016\u2212\u00a2\u00a3\u00ac"
)
_ENCODING_OF: Final = {collation: name for name, collations in _ENCODINGS.items() for collation in collations}
_NO_PAD: Final = 1024
_UCA1400: Final = (("utf-8", 2048, 2304), ("utf-8", 2304, 2560), ("utf-16-be", 2560, 3072), ("utf-32-be", 3072, 3328))
"""MariaDB 10.10's UCA-1400 collations: 256 numbers each for utf8mb3, utf8mb4, ucs2, utf16, utf32."""


def python_encoding(collation: int, where: str) -> str:
    """The codec of a collation's character set, for `decode_text`. 0, an unknown collation, is read as UTF-8.

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
            "utf8mb4 and start from a new snapshot, or leave the column out with column.exclude.list"
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


_DECODERS: Final[dict[str, Callable[[bytes], str]]] = {
    LATIN1: lambda raw: raw.decode("cp1252", "barnabas-latin1"),
    UJIS: decode_ujis,
    EUCJPMS: decode_eucjpms,
    SJIS: lambda raw: raw.decode("cp932").translate(_SJIS_SIGNS),
}


def decode_text(raw: bytes, encoding: str) -> str:
    """Decode bytes of a column. `encoding` is a result of `python_encoding`. Raises UnicodeDecodeError."""
    decoder = _DECODERS.get(encoding)
    if decoder is not None:
        return decoder(raw)
    text = raw.decode(encoding)
    signs = _SIGNS.get(encoding)
    return text if signs is None else text.translate(signs)
