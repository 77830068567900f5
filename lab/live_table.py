"""The table of live runs in docs/methods.md, from the figures beside the drafts."""

from __future__ import annotations

import json
from pathlib import Path

DRAFTS = Path(__file__).with_name("drafts")
FILES = ("acceptance.json", "acceptance_llamacpp.json")
ENGINES = {"acceptance.json": "vLLM 0.32.0, CPU build, eager", "acceptance_llamacpp.json": "llama.cpp build 11434, CPU"}


def table() -> str:
    rows = [
        "| engine | arm | drafted steps | joint acceptance by position | of the bfloat16 weights |",
        "|---" * 5 + "|",
    ]
    for name in FILES:
        entries = json.loads((DRAFTS / name).read_text(encoding="utf-8"))["arms"]
        for key, entry in sorted(entries.items()):
            place = ENGINES[name] + (", Triton interpreted" if "interpreted" in key else "")
            original = _shares(entry["bfloat16"]["joint"]) if "bfloat16" in entry else ""
            arm, joint = key.partition("/")[2], _shares(entry["joint"])
            rows.append(f"| {place} | `{arm}` | {entry['drafted_steps']} | {joint} | {original} |")
    return "\n".join(rows) + "\n"


def _shares(joint: list[float]) -> str:
    return " ".join(f"{share:.3f}".lstrip("0") for share in joint)
