"""What a running vLLM does with pairs that the checks refuse: python lab/confirm_faults.py [--list] [NAME ...].

Each fault of `FAULTS` is a good pair of lab/live_plans.py with one small edit. Printed for each: the checks that fail,
then what a boot of vLLM does with it: the reason that it gives for ending, or the method and K in force and the share
of drafts accepted by position. Answers are kept in --work, and counted against those of the target without
speculation where `baseline` was measured before. docs/design/preflight.md has what was seen.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script: the repository is the package's place

from lab import acceptance, boots, checkpoints, faults, live_plans
from specdyno.errors import EngineError
from specdyno.plan import parse
from specdyno.plan.schema import Arm, Plan
from specdyno.preflight.pair.check import check_pairs
from specdyno.preflight.schema import Grade
from specdyno.workload.sources import load_pools

PROMPTS = 3  # of the list: enough to tell a dead draft from a living one
REASON_LINES = 3
_NOISE = ("See root cause above", ", retrying ", "Too many open files", "See stack trace for root cause")
_ERROR = re.compile(r"\b((?:[A-Z]\w*)?(?:Error|Exception): .+)")


@dataclass(frozen=True, slots=True)
class Fault:
    """`make(folder)` writes the faulty checkpoint; it stands for `replaces`, a method of the plan or "target"."""

    kind: str
    method: str
    make: Callable[[Path], Path] | None = None
    replaces: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)  # of the candidate in the plan


def _drafts(make: Callable[..., Path], method: str, **given: Any) -> Fault:
    restore = live_plans.DRAFTS[method]
    kind = "vllm-gemma4" if method == "gemma4_mtp" else "vllm"
    return Fault(kind, method, lambda folder: make(restore(), folder / "pair", **given), method)


def _mtp(make: Callable[[Path, Path], Path]) -> Fault:
    return Fault("vllm-mtp", "mtp", lambda folder: make(checkpoints.mtp_target(), folder / "pair"), "target")


def _lacking(*names: str) -> Callable[[Path, Path], Path]:
    return lambda source, folder: faults.without_tensors(source, folder, *names)


def _named(name: str) -> Callable[[Path], Path]:
    return lambda folder: faults.renamed(checkpoints.first_layers(), folder / name)


BASELINE = "baseline"
FAULTS: dict[str, Fault] = {
    BASELINE: Fault("vllm", "ngram"),
    "hidden size of another target": _drafts(faults.wrong_hidden_size, "eagle3", hidden_size=1152),
    "fc of two layers": _drafts(faults.wrong_fc_width, "eagle3"),
    "no fc": _drafts(_lacking("fc.weight"), "eagle3"),
    "no map d2t": _drafts(faults.without_token_map, "eagle3"),
    "no lm_head": _drafts(_lacking("lm_head"), "eagle3"),
    "layer id past the target's depth": _drafts(faults.other_layer_ids, "eagle3", ids=(2, 15, 40)),
    "dflash without fc": _drafts(_lacking("fc.weight"), "dflash"),
    "dflash's mask token past the vocabulary": _drafts(faults.other_mask_token, "dflash", token=60_000),
    "dflash with more layers than fc": _drafts(faults.other_layer_ids, "dflash", ids=(1, 10, 14, 26)),
    "K above dflash's block": Fault("vllm", "dflash", changes={"draft_tokens": [10]}),
    "MTP tensors left out": _mtp(_lacking("mtp_layers")),
    "quantised without MTP tensors": _mtp(faults.quantised_without_mtp),
    "mtp of a target that has none": Fault("vllm-mtp", "mtp", lambda _: checkpoints.smollm2(), "target"),
    "a path with eagle3": Fault("vllm", "draft_model", _named("smollm2-eagle3-like"), "draft_model"),
    "a path with dflash": Fault("vllm", "draft_model", _named("smollm2-dflash-like"), "draft_model"),
    "padded vocabulary": _drafts(faults.padded_vocabulary, "draft_model"),
    "assistant's clustered head": _drafts(faults.changed_config, "gemma4_mtp", use_ordered_embeddings=True),
    "assistant of another hidden size": _drafts(faults.changed_config, "gemma4_mtp", backbone_hidden_size=320),
    "a header that is no JSON": _drafts(faults.header_of_no_json, "eagle3"),
    "a file cut off": _drafts(faults.cut_off, "eagle3"),
    "dspark on the plain CPU build": Fault("vllm-interpreted", "dspark"),
    "a tensor-parallel size of the draft": Fault("vllm", "eagle3", changes={"options": {"tensor_parallel_size": 1}}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true", help="names only")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "specdyno-faults")
    given = parser.parse_args()
    for name in given.names or FAULTS:
        print(name if given.list else json.dumps({"fault": name, **confirmed(name, given.work)}), flush=True)


def confirmed(name: str, work: Path) -> dict[str, Any]:
    """The checks that fail and what a boot of the faulty pair did."""
    fault = FAULTS[name]
    with tempfile.TemporaryDirectory() as scratch:
        folders = {fault.replaces: fault.make(Path(scratch))} if fault.make else {}
        plan, text = faulty_plan(fault, folders)
        failing = sorted({check.rule for check in check_pairs(plan) if check.grade is Grade.FAIL})
        began = time.monotonic()
        try:
            found = _served(plan, text, plan.arms()[0 if name == BASELINE else 1], Path(scratch))
        except EngineError as error:
            found = {"ended": str(error), "remedy": error.remedy, "log": _reason(Path(scratch) / "engine.log")}
        seconds = round(time.monotonic() - began)
    if answers := found.pop("answers", {}):
        found["as baseline"] = _compared(answers, work, name)
    return {"checks": failing, "seconds": seconds, **found}


def faulty_plan(fault: Fault, folders: dict[str, Path]) -> tuple[Plan, str]:
    """The plan of the fault's kind with its one candidate, as it is booted."""
    content = yaml.safe_load(live_plans.text(fault.kind, folders))
    candidate = next(one for one in content["candidates"] if one["method"] == fault.method)
    content["candidates"] = [candidate | dict(fault.changes)]
    text = yaml.safe_dump(content)
    return parse.parse(text), text


def _served(plan: Plan, text: str, arm: Arm, scratch: Path) -> dict[str, Any]:
    prompts = load_pools(plan, Path())["listed"].prompts[:PROMPTS]
    with boots.opened(scratch, plan, text) as store:
        booted = boots.boot_once(store, plan, arm, prompts=prompts, log=scratch / "engine.log")
    rows, identity = booted.rows, booted.boot.identity
    found: dict[str, Any] = {"outcomes": sorted({str(row.outcome) for row in rows})}
    found["answers"] = {row.prompt_id: row.text for row in rows}
    if identity is not None:
        found |= {"method": identity.method, "K": identity.draft_tokens}
    if all(row.spec is not None for row in rows):
        found["joint"] = [round(float(one), 3) for one in acceptance.curve_of(rows, arm.draft_tokens or 0).joint]
    return found


def _compared(answers: dict[str, str], work: Path, name: str) -> str:
    """How many answers are the baseline's; empty for another target than its, and before it was measured."""
    work.mkdir(parents=True, exist_ok=True)
    (work / f"{name}.json").write_text(json.dumps(answers), encoding="utf-8")
    kept = work / f"{BASELINE}.json"
    if not kept.exists() or FAULTS[name].kind == "vllm-gemma4":
        return ""
    expected = json.loads(kept.read_text(encoding="utf-8"))
    return f"{sum(text == expected[prompt] for prompt, text in answers.items())} of {len(answers)}"


def _reason(log: Path) -> list[str]:
    """The errors that the log names first, without vLLM's remark that its engine process ended of them."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    named = (line for line in _ERROR.findall(text) if not any(noise in line for noise in _NOISE))
    return list(dict.fromkeys(named))[:REASON_LINES]


if __name__ == "__main__":
    main()
