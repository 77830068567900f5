"""The `name: value` fields that engines print in one log line, found by name and not by place."""

from __future__ import annotations

import re

from specdyno.engine.reading.schema import number

# A name begins with a letter or '#' and holds no comma, so that a list of numbers stays the value of its own name.
_NAME = re.compile(r"(?:^|[,.]\s+|\s*,\s*)(#?[A-Za-z][^:,=]*?)\s*:\s+")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf(?:inity)?)", re.IGNORECASE)


def parse_fields(text: str) -> dict[str, str]:
    """Fields in order of appearance, names in lower case.

    >>> parse_fields("Accepted: 25 tokens, Per-position acceptance rate: 0.027, 0.000, Depth: 3")
    {'accepted': '25 tokens', 'per-position acceptance rate': '0.027, 0.000', 'depth': '3'}
    """
    text = text.strip().strip(",.").strip()
    names = list(_NAME.finditer(text))
    ends = [*(name.start() for name in names[1:]), len(text)][: len(names)]
    return {
        name[1].strip().lower(): text[name.end() : end].strip().strip(",").strip()
        for name, end in zip(names, ends, strict=True)
    }


def quantity(text: str | None, *, unit: str = "") -> float | None:
    """The number of a field; None where it is missing, nan or cut off before its unit.

    >>> quantity("25 tokens", unit="tokens"), quantity("25 tok", unit="tokens")
    (25.0, None)
    """
    if text is None:
        return None
    found = _NUMBER.match(text)
    if found is None or text[found.end() :].strip() != unit:
        return None
    return number(found[0])


def numbers(text: str | None) -> list[float | None]:
    """A list of numbers; None where one is nan. Text that is no list gives nothing."""
    items = [item.strip() for item in (text or "").strip("() ").split(",") if item.strip()]
    return [number(item) for item in items] if all(_NUMBER.fullmatch(item) for item in items) else []
