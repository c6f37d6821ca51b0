"""Codec: texts in the character sets ujis and eucjpms, as the server converts them to Unicode.

Both are EUC-JP: ASCII, 0x8E and a half-width Katakana, two bytes from 0xA1 on (JIS X 0208), 0x8F and two bytes (JIS X
0212). Python's `euc_jp` lacks rows that the servers have, and decodes some signs differently:

| Bytes | ujis | eucjpms |
|---|---|---|
| 0xADA1 to 0xADFC, NEC's row 13 | no character; decoded as in eucjpms | as in cp932, from U+2460 (①) on |
| 0x8FF3F3 to 0x8FF4FE, IBM's extensions | no character | those of cp932 that JIS X 0208 and 0212 lack, and U+2116 |
| 0xF5A1 to 0xFEFE; 0x8FF5A1 to 0x8FFEFE | U+E000 to U+E3AB; U+E3AC to U+E757 | the same |
| 0xA1C0 | backslash | U+FF3C |
| 0xA1C1, 0xA1C2, 0xA1DD, 0xA1F1, 0xA1F2, 0xA2CC, 0x8FA2B7, 0x8FA2C3 | as Python's | as in cp932 |

Source: the conversion to utf8mb4 of all byte sequences by MariaDB 10.11 and MySQL 9.7.
"""

from __future__ import annotations

import codecs
from functools import cache
from typing import Final

_SS3: Final = 0x8F
_FIRST: Final = 0xA1
_LAST: Final = 0xFE
_ROW_SIZE: Final = 94
_NEC_ROW: Final = 0xAD
_USER_ROWS: Final = 0xF5
_USER_FIRST: Final = 0xE000
_IBM_FIRST: Final = (0xF3 - _FIRST) * _ROW_SIZE + 0xF3 - _FIRST

_UJIS_SIGNS: Final = str.maketrans("\uff3c", "\\")
_EUCJPMS_SIGNS: Final = str.maketrans(
    "\u301c\u2016\u2212\u00a2\u00a3\u00ac\u00a6", "\uff5e\u2225\uff0d\uffe0\uffe1\uffe2\uffe4"
)


def decode_ujis(raw: bytes) -> str:
    """Decode a text in ujis. Raises UnicodeDecodeError."""
    return raw.decode("euc_jp", "barnabas-ujis").translate(_UJIS_SIGNS)


def decode_eucjpms(raw: bytes) -> str:
    """Decode a text in eucjpms. Raises UnicodeDecodeError."""
    # Python decodes 0x8FA2B7 as ASCII's tilde, and the server as 0xA1C1. 0x8F only ever begins a character.
    return raw.replace(b"\x8f\xa2\xb7", b"\xa1\xc1").decode("euc_jp", "barnabas-eucjpms").translate(_EUCJPMS_SIGNS)


@cache
def _nec_row() -> str:
    """The characters of row 13; U+FFFD where there is none."""
    # cp932 has two rows behind each first byte: row 13 is the first half of 0x87, without the trail byte 0x7F.
    trails = (trail for trail in range(0x40, 0x9F) if trail != 0x7F)
    return "".join(bytes((0x87, trail)).decode("cp932", "replace")[0] for trail in trails)


@cache
def _ibm_extensions() -> str:
    """The characters of 0x8FF3F3 to 0x8FF4FE."""
    found = (
        bytes((lead, trail)).decode("cp932", "replace")
        for lead in range(0xFA, 0xFD)
        for trail in range(0x40, 0xFD)
        if trail != 0x7F
    )
    # U+2116 is in JIS X 0212, and eucjpms has it twice.
    return "".join(one for one in found if len(one) == 1 and (one == "\u2116" or not _in_euc_jp(one)))


def _in_euc_jp(character: str) -> bool:
    try:
        character.translate({0xFFE2: 0xAC, 0xFFE4: 0xA6}).encode("euc_jp")
    except UnicodeEncodeError:
        return False
    return True


def _missing(error: UnicodeError, *, extensions: bool) -> tuple[str, int]:
    """A character that Python's `euc_jp` lacks, and the position behind it. Raises `error` if the server lacks it."""
    assert isinstance(error, UnicodeDecodeError)
    at = error.start
    three = error.object[at] == _SS3
    pair = error.object[at + three : at + three + 2]
    if len(pair) == 2 and all(_FIRST <= byte <= _LAST for byte in pair):
        lead, place = pair[0], (pair[0] - _FIRST) * _ROW_SIZE + pair[1] - _FIRST
        character = "\ufffd"
        if lead >= _USER_ROWS:
            rows = _USER_ROWS - _FIRST - (_LAST - _USER_ROWS + 1 if three else 0)
            character = chr(_USER_FIRST + place - rows * _ROW_SIZE)
        elif lead == _NEC_ROW and not three:
            character = _nec_row()[pair[1] - _FIRST]
        elif three and extensions and place >= _IBM_FIRST:
            character = _ibm_extensions()[place - _IBM_FIRST]
        if character != "\ufffd":
            return character, at + three + 2
    raise error


codecs.register_error("barnabas-ujis", lambda error: _missing(error, extensions=False))
codecs.register_error("barnabas-eucjpms", lambda error: _missing(error, extensions=True))
