"""Measure the drafts' acceptance on the fixed prompt list: python lab/record_acceptance.py [--keep] [KIND/ARM ...].

Boots each arm of lab/live_plans.py once (vLLM, eager, temperature 0, one client) and prints its curve; with --keep the
figures go to lab/drafts/acceptance.json, where the live tests read them. `--with METHOD=FOLDER` measures another
checkpoint in a draft's place ("target" for the target, "mtp" for MTP tensors alone); with --original its curve is kept
beside the recorded one, as that of the bfloat16 weights from which the 8-bit ones were made. The interpreted arm runs
only where it is named, with what its engine needs: --env TRITON_INTERPRET=1 --env PYTHONPATH=FOLDER.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script: the repository is the package's place

from lab import acceptance, boots, live_plans
from specdyno.plan.schema import Role
from specdyno.workload.sources import load_pools

INTERPRETED = "vllm-interpreted"
ORIGINAL = ("measured", "drafted_steps", "joint", "by_prompt")  # kept of the bfloat16 weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("arms", nargs="*", metavar="KIND/ARM")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--original", action="store_true", help="keep the curve as that of the bfloat16 weights")
    parser.add_argument("--with", dest="other", action="append", default=[], metavar="METHOD=FOLDER")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="for the engine")
    given = parser.parse_args()
    os.environ.update(dict(one.split("=", 1) for one in given.env))
    folders = {name: Path(folder) for name, _, folder in (one.partition("=") for one in given.other)}
    for kind in live_plans.CANDIDATES:
        for name in (arm.name for arm in live_plans.plan(kind).arms() if arm.role is Role.CANDIDATE):
            if f"{kind}/{name}" not in given.arms and (given.arms or kind == INTERPRETED):
                continue
            entry = measured(kind, name, folders)
            print(f"{kind}/{name}: {entry['joint']} over {entry['drafted_steps']} steps", flush=True)
            if given.original:
                _keep(f"{kind}/{name}", {"bfloat16": {key: entry[key] for key in ORIGINAL}})
            elif given.keep:
                _keep(f"{kind}/{name}", entry)


def _keep(name: str, entry: dict) -> None:
    """Add to the arm's entry; what is known of its original weights stays."""
    known = acceptance.read() if acceptance.RECORDED.exists() else {}
    acceptance.write({**known, name: {**known.get(name, {}), **entry}})


def measured(kind: str, name: str, folders: dict[str, Path]) -> dict:
    text = live_plans.text(kind, folders)
    plan = live_plans.plan(kind, folders)
    arm = next(arm for arm in plan.arms() if arm.name == name)
    prompts = load_pools(plan, Path())["listed"].prompts
    with tempfile.TemporaryDirectory() as scratch, boots.opened(Path(scratch), plan, text) as store:
        booted = boots.boot_once(store, plan, arm, prompts=prompts, log=Path(scratch) / "engine.log")
    identity = booted.boot.identity
    assert identity is not None
    return acceptance.to_entry(
        acceptance.curve_of(booted.rows, arm.draft_tokens or 0),
        method=str(arm.method),
        engine=f"{identity.engine} {identity.version}",
        mode="eager, temperature 0, one client" + (", Triton's interpreter" if kind == INTERPRETED else ""),
        prompts=f"{live_plans.PROMPTS.name} sha256:{acceptance.prompts_sha256(live_plans.PROMPTS)[:16]}",
        max_tokens=live_plans.MAX_TOKENS,
        measured=dt.datetime.now(tz=dt.UTC).date().isoformat(),
    )


if __name__ == "__main__":
    main()
