"""What the evidence holds for: where it was measured and with what. Elsewhere it is a test plan."""

from __future__ import annotations

from typing import Any

from specdyno.plan.schema import BASELINE
from specdyno.records.confounds import resolved
from specdyno.records.schema import BootRecord, StudyRecords


def fingerprint(records: StudyRecords, boots: dict[str, BootRecord]) -> dict[str, Any]:
    """Facts by name, from the header's provenance and each arm's first scored boot; JSON scalars, maps and lists."""
    baseline = boots.get(BASELINE)
    settings = resolved(baseline) if baseline is not None else {}
    return {
        "engine": settings.get("engine"),
        "engine_version": settings.get("engine_version"),
        "model": settings.get("model"),
        "settings": {
            name: value for name, value in settings.items() if name not in ("engine", "engine_version", "model")
        },
        "arms": {arm: _as_run(boot) for arm, boot in sorted(boots.items())},
        "host": dict(records.header.provenance),
        "plan_sha256": records.header.plan_sha256,
    }


def _as_run(boot: BootRecord) -> dict[str, Any]:
    identity = boot.identity
    if identity is None:
        return {"method": None, "draft_tokens": None, "draft": None}
    return {"method": identity.method, "draft_tokens": identity.draft_tokens, "draft": identity.draft}
