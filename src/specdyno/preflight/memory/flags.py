"""The engine's own settings as a plan states them: flags by any spelling, amounts in the engine's notation."""

from __future__ import annotations

import re
from collections.abc import Mapping

_NUMBER = re.compile(r"^(\d+(?:\.\d+)?)\s*([kKmMgGtT]?)$", re.ASCII)
# vLLM's notation: a small letter is a power of 1000, a capital one of 1024.
_SCALES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}

Flags = Mapping[str, str | int | float | bool | None]


def text(flags: Flags, *names: str) -> str | None:
    """The value of a flag under any of its names; None where it is not set."""
    wanted = {name.replace("_", "-") for name in names}
    found = [value for key, value in flags.items() if key.replace("_", "-") in wanted]
    return None if not found or isinstance(found[-1], bool) or found[-1] is None else str(found[-1])


def number(flags: Flags, *names: str) -> float | None:
    """A number, with vLLM's letters for thousands; None where the flag is not set or holds no number.

    >>> number({"max_model_len": "32k"}, "max-model-len"), number({"kv-cache-memory": "2G"}, "kv-cache-memory")
    (32000.0, 2147483648.0)
    """
    match = _NUMBER.match(text(flags, *names) or "")
    return float(match[1]) * _SCALES.get(match[2], 1) if match else None


def whole(flags: Flags, *names: str) -> int | None:
    """A positive whole number; None where the flag is not set or says something else (such as "auto")."""
    value = number(flags, *names)
    return int(value) if value is not None and value >= 1 else None


def switch(flags: Flags, name: str) -> bool | None:
    """Whether a switch is on (`--name`) or off (`--no-name`); None where neither goes to the engine.

    A flag whose value is false is left out of the command line, so it says nothing.
    """
    for key, value in flags.items():
        flag = key.replace("_", "-")
        if value is not False and flag in (name, f"no-{name}"):
            return flag == name
    return None
