"""What llama.cpp's start-up log says about a boot: facts for its fingerprint, and why it drafts other than asked.

Shapes of build 11434, all seen here. The log is untrusted text: nothing but what is matched is taken from it.
"""

from __future__ import annotations

import re
from typing import Any

_NOT_STARTED = re.compile(r"failed to initialize speculative decoding context: (?P<why>[^\n]{1,300})")
_UNSUPPORTED = "speculative decoding not supported by this context"
_CLAMPED = re.compile(r"exceeds the trained block size (?P<block>\d+) -- clamping to (?P<k>\d+)")

# Said from verbosity 4 on, one boot or two of each (the draft's follows the target's): the first is taken.
_FACTS = {
    "build": re.compile(r"print_info: build (?P<fact>[^\n]{1,200})"),
    "system": re.compile(r"system_info: (?P<fact>[^\n]{1,500})"),
    "flash_attention": re.compile(r"Flash Attention (?P<fact>[^\n]{1,100})"),
    "offloaded_layers": re.compile(r"offloaded (?P<fact>\d+/\d+) layers"),
    "kv_cache": re.compile(r"llama_kv_cache: size = [^(\n]{1,40}\(\s*(?P<fact>\d+ cells,[^\n]{1,200})"),
    "kv_unified": re.compile(r"kv_unified\s*= '?(?P<fact>true|false)'?"),
}
_DEVICE = re.compile(r" - (?P<device>\S+ *: [^\n]{1,200}?) \(\d+ MiB, \d+ MiB free\)$", re.MULTILINE)

_REMEDIES = (
    ("vocab type must match", "The draft has another vocabulary: take one with the target's own tokenizer"),
    ("is not eagle3", "The file is no EAGLE-3 draft: check candidates[].draft and the method"),
    ("no confidence head", "This DSpark draft cannot stop early: remove spec-draft-p-min from options"),
    (_UNSUPPORTED, "llama.cpp cannot take tokens back from this model's memory: only the baseline can be measured"),
)
_USUAL_REMEDY = "Check that candidates[].draft is a draft for this target, and that the method is the draft's"

DRAFT_SIGNS = (
    ("failed to load draft model", "The draft cannot be read: check that candidates[].draft is a whole GGUF file"),
    ("target layer id", "The draft reads layers that the target lacks: it was made for another target"),
    ("mtp input row width", "The draft was made for a target of another hidden size"),
    ("context type mtp requested", "The target's GGUF has no layers to predict with (nextn): method mtp cannot run"),
    ("failed to create mtp context", "The draft does not fit this target: check candidates[].draft and the method"),
)
"""A word of the log of a boot that ended -> what to do."""


def why_without_speculation(log: str) -> tuple[str, str]:
    """llama.cpp's own reason for serving without speculation, and what to do; both of them general if it gave none."""
    if (found := _NOT_STARTED.search(log)) is not None:
        reason = found["why"].strip()
    elif _UNSUPPORTED in log:
        reason = _UNSUPPORTED
    else:
        return "its log gives no reason", _USUAL_REMEDY
    return reason, next((remedy for sign, remedy in _REMEDIES if sign in reason), _USUAL_REMEDY)


def clamped_to(log: str) -> int | None:
    """K as cut to the block that a DFlash or DSpark draft was trained for; None where it was not cut.

    >>> clamped_to("(n_max=12, n_min=0) exceeds the trained block size 8 -- clamping to 7")
    7
    """
    found = _CLAMPED.search(log)
    return int(found["k"]) if found else None


def facts(log: str) -> dict[str, Any]:
    """Build, devices, layers on them, processor features, attention and KV cells, as the log states them.

    What it does not state is left out. Texts, with runs of blanks made one.
    """
    found = {name: match["fact"] for name, pattern in _FACTS.items() if (match := pattern.search(log))}
    if devices := list(dict.fromkeys(match["device"] for match in _DEVICE.finditer(log))):
        found["devices"] = ", ".join(devices)
    return {name: " ".join(fact.split()) for name, fact in found.items()}
