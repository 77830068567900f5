"""How values are spelled in a plan: durations, shares, flags; and how a refusal is put into words.

Owns the annotated types of the schema. Text turns into numbers here only; numbers are strict, so that neither
`"3"` nor `true` passes for 3.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer
from pydantic_core import PydanticCustomError

_DURATION = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*$", re.ASCII)
_DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_FRACTION = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(%|pp)\s*$", re.ASCII)
_AMOUNT = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([KMGT]i?B)\s*$", re.ASCII)
_AMOUNT_UNITS = {
    f"{letter}{infix}B": base**power
    for power, letter in enumerate("KMGT", start=1)
    for infix, base in (("", 1000), ("i", 1024))
}
_VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
YEAR_S = 366 * 86400.0


def refusal(seen: str, remedy: str) -> PydanticCustomError:
    """The error of a validator, in two parts that `plan.parse` turns into a `Problem`; raise what this returns."""
    return PydanticCustomError("plan", "{seen}. {remedy}", {"seen": seen, "remedy": remedy})


def duration_s(value: object) -> object:
    """Seconds from `"90s"`, `"20m"`, `"6h"`, `"500ms"`; what is neither text nor number is left for pydantic to refuse.

    >>> duration_s("20m")
    1200.0
    """
    if isinstance(value, str) and (match := _DURATION.match(value)):
        return float(match[1]) * _DURATION_UNITS[match[2]]
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise refusal(f"{value} has no unit", 'Write a duration, e.g. "20s", "5m" or "2h"')
    if isinstance(value, str):
        raise refusal(f"{quoted(value)} is no duration", 'Write e.g. "20s", "5m" or "2h"')
    return value


def duration_text(seconds: float) -> str:
    """The shortest spelling that `duration_s` reads back to the same number.

    >>> duration_text(1200.0), duration_text(0.25)
    ('20m', '0.25s')
    """
    for unit in ("d", "h", "m"):
        count = seconds / _DURATION_UNITS[unit]
        if count.is_integer() and count >= 1 and count * _DURATION_UNITS[unit] == seconds:
            return f"{int(count)}{unit}"
    plain = format(Decimal(repr(seconds)), "f")
    return f"{plain.removesuffix('.0')}s"


def fraction(value: object) -> object:
    """A fraction from `"5%"` or `"0.5pp"` (percentage points) or from a bare number already a fraction.

    >>> fraction("5%")
    0.05
    """
    if isinstance(value, str):
        if match := _FRACTION.match(value):
            return float(match[1]) / 100.0
        raise refusal(f"{quoted(value)} is no share", 'Write e.g. "5%", "0.5pp" or 0.05')
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 1:
        raise refusal(f"{value} is more than the whole", f'Write a fraction up to 1, or a percentage: "{value}%"')
    return value


def amount_bytes(value: object) -> object:
    """Bytes from `"24 GiB"`, `"80GB"`; what is neither text nor number is left for pydantic to refuse.

    >>> amount_bytes("2 GiB")
    2147483648
    """
    if isinstance(value, str):
        if match := _AMOUNT.match(value):
            return int(Decimal(match[1]) * _AMOUNT_UNITS[match[2]])
        raise refusal(f"{quoted(value)} is no amount of memory", 'Write e.g. "24 GiB" or "80 GB"')
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise refusal(f"{value} has no unit", 'Write an amount of memory, e.g. "24 GiB" or "80 GB"')
    return value


def amount_text(size_bytes: int) -> str:
    """The shortest spelling that `amount_bytes` reads back to the same number.

    >>> amount_text(2147483648), amount_text(80_000_000_000)
    ('2 GiB', '80 GB')
    """
    for unit in ("TiB", "TB", "GiB", "GB", "MiB", "MB", "KiB"):
        if size_bytes % _AMOUNT_UNITS[unit] == 0:
            return f"{size_bytes // _AMOUNT_UNITS[unit]} {unit}"
    return f"{Decimal(size_bytes) / 1000} KB"


def quoted(text: str) -> str:
    r"""Text as a message shows it: in quotes, on one line, without control characters, at most 60 characters.

    >>> quoted("two\nlines")
    '"two\\nlines"'
    """
    flat = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:61])
    return f'"{flat[:60]}…"' if len(text) > 60 else f'"{flat}"'


def flag(value: object) -> object:
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    raise refusal("a flag takes one value", "Write one value; a list or JSON goes in quotes, as the engine expects it")


def environment(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return value
    raise refusal("the value of an environment variable must be text", 'Put it in quotes, e.g. "true"')


def variable_name(value: object) -> object:
    # The value is not shown: the likeliest mistake is the key itself in the place of the variable's name.
    if isinstance(value, str) and not _VARIABLE.match(value):
        raise refusal("this is not the name of an environment variable", "Write its name, never the key itself")
    return value


Duration = Annotated[
    float,
    BeforeValidator(duration_s),
    Field(strict=True, gt=0, le=YEAR_S, json_schema_extra={"written": "duration"}),
    PlainSerializer(duration_text, return_type=str, when_used="json"),
]
Fraction = Annotated[
    float, BeforeValidator(fraction), Field(strict=True, ge=0, le=1, json_schema_extra={"written": "share"})
]
Amount = Annotated[
    int,
    BeforeValidator(amount_bytes),
    Field(strict=True, gt=0, le=2**60, json_schema_extra={"written": "amount of memory"}),
    PlainSerializer(amount_text, return_type=str, when_used="json"),
]
Whole = Annotated[int, Field(strict=True)]
Number = Annotated[float, Field(strict=True)]
Switch = Annotated[bool, Field(strict=True)]
Flag = Annotated[str | int | float | bool | None, BeforeValidator(flag)]
EnvironmentText = Annotated[str, BeforeValidator(environment)]
VariableName = Annotated[str, BeforeValidator(variable_name)]
