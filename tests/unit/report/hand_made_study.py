"""One whole study made by hand: two objectives that disagree, a class without a number, doubts, a broken block."""

import math
from dataclasses import replace

import numpy as np

from specdyno.plan.schema import Plan
from specdyno.records.schema import (
    BootRecord,
    BootStatus,
    Finding,
    FindingCode,
    Identity,
    Outcome,
    Requests,
    Severity,
    StudyHeader,
    StudyRecords,
    WindowKind,
    WindowRecord,
)
from specdyno.statistics.analysis import Analysis, ArmSummary, BlockState, Contrast, Curve, Level
from specdyno.statistics.intervals import Interval, Undefined
from specdyno.verdict.schema import (
    CandidateVerdict,
    Decision,
    Gate,
    GateStatus,
    ObjectiveVerdict,
    Reason,
    Verdict,
)

PLAN_YAML = """\
study: agent-pool
target: {model: org/target-8b}
engine: {kind: vllm, args: {max-num-seqs: 32}}
candidates:
  - {method: eagle3, draft: org/draft, draft_tokens: [1, 3, 5]}
  - {method: ngram, draft_tokens: [3]}
workload:
  sampling: {temperature: 0.0}
  classes:
    - {name: code, prompts: "builtin:code", share: 0.5, max_tokens: 96}
    - {name: chat, prompts: ./chat.jsonl, share: 0.3, max_tokens: 96}
    - {name: tools, prompts: ./tools.jsonl, share: 0.2, max_tokens: 96}
loads:
  - {name: interactive, concurrency: 1, window: 20s, class_windows: true}
  - {name: pool, concurrency: 16, window: 60s}
objectives:
  - {name: interactive, load: interactive, measure: time_per_job}
  - {name: background pool, load: pool, measure: jobs_per_s}
"""
PLAN = {
    "study": "agent-pool",
    "target": {"model": "org/target-8b"},
    "engine": {"kind": "vllm", "args": {"max-num-seqs": 32}},
    "candidates": [
        {"method": "eagle3", "draft": "org/draft", "draft_tokens": [1, 3, 5]},
        {"method": "ngram", "draft_tokens": [3]},
    ],
    "workload": {
        "sampling": {"temperature": 0.0},
        "classes": [
            {"name": "code", "prompts": "builtin:code", "share": 0.5, "max_tokens": 96},
            {"name": "chat", "prompts": "./chat.jsonl", "share": 0.3, "max_tokens": 96},
            {"name": "tools", "prompts": "./tools.jsonl", "share": 0.2, "max_tokens": 96},
        ],
    },
    "loads": [
        {"name": "interactive", "concurrency": 1, "window": "20s", "class_windows": True},
        {"name": "pool", "concurrency": 16, "window": "60s"},
    ],
    "objectives": [
        {"name": "interactive", "load": "interactive", "measure": "time_per_job"},
        {"name": "background pool", "load": "pool", "measure": "jobs_per_s"},
    ],
}
ARMS = ("baseline", "eagle3-k1", "eagle3-k3", "eagle3-k5", "ngram-k3")
LOADS = ("interactive", "pool")
CLASSES = ("code", "chat", "tools")
K = {"eagle3-k1": 1, "eagle3-k3": 3, "eagle3-k5": 5, "ngram-k3": 3}
GAIN = {
    ("eagle3-k1", "interactive"): 1.118,
    ("eagle3-k3", "interactive"): 1.213,
    ("eagle3-k5", "interactive"): 1.196,
    ("ngram-k3", "interactive"): 1.021,
    ("eagle3-k1", "pool"): 1.047,
    ("eagle3-k3", "pool"): 0.958,
    ("eagle3-k5", "pool"): 0.861,
    ("ngram-k3", "pool"): 0.902,
}
CLASS_FACTOR = {"code": 1.09, "chat": 0.93, "tools": 1.02}
RATES = {"code": (0.81, 0.72, 0.66, 0.61, 0.57), "chat": (0.58, 0.49, 0.42, 0.37, 0.33)}
BLOCKS = 4


def interval(estimate, half, *, level=0.95, method="t over blocks", count=BLOCKS):
    """An interval of relative half-width `half`."""
    return Interval(estimate, estimate * math.exp(-half), estimate * math.exp(half), level, method, count)


def share(estimate, half=0.02):
    return Interval(estimate, max(0.0, estimate - half), min(1.0, estimate + half), 0.95, "t over boots", BLOCKS)


def study():
    """Records, analysis and verdict that belong together."""
    return records(), analysis(), verdict()


def records():
    plan = Plan.model_validate(PLAN)
    boots, windows = [], []
    for block in range(BLOCKS + 1):
        for position, arm in enumerate((*ARMS[block % 5 :], *ARMS[: block % 5])):
            broken = block == BLOCKS and arm == "ngram-k3"
            boots.append(boot(len(boots) + 1, block, arm, position=position, broken=broken))
            if not broken:
                windows.append(window(len(windows) + 1, boots[-1]))
    header = StudyHeader(
        plan=plan.model_dump(mode="json"),
        plan_yaml=PLAN_YAML,
        plan_sha256="ab" * 32,
        created_unix_ns=1_760_000_000_000_000_000,
        provenance={"specdyno": "0.1.0", "host": {"cpu": "EPYC 9554", "cores": 64}, "packages": {"vllm": "0.32.0"}},
        sizing={"interactive": 24, "pool": 240},
    )
    return StudyRecords(header, tuple(boots), tuple(windows), requests(windows))


def boot(number, block, arm, *, position, broken):
    start = number * 600_000_000_000
    speculates = arm != "baseline"
    return BootRecord(
        number,
        block,
        arm,
        0,
        position,
        BootStatus.FAILED if broken else BootStatus.COMPLETE,
        start,
        1_760_000_000_000_000_000 + start,
        ready_ns=start + 25_400_000_000,
        ended_ns=start + 500_000_000_000,
        command=("python", "-m", "vllm.entrypoints.openai.api_server", "--max-num-seqs", "32"),
        identity=Identity(
            "vllm",
            "0.32.0",
            "org/target-8b",
            speculates,
            arm.split("-")[0] if speculates else None,
            K.get(arm),
            "org/draft" if arm.startswith("eagle3") else None,
            {"dtype": "bfloat16", "max_num_seqs": 32, "num_gpu_blocks": 900 if speculates else 1000},
            "/server_info",
        ),
        failure="the engine died: out of memory" if broken else "",
        log_path=f"logs/{block}-{arm}.log",
        memory_bytes=7_340_032_000,
    )


def window(number, of):
    start = of.started_ns + 30_000_000_000
    return WindowRecord(
        number, of.id, "interactive", WindowKind.MIXED, None, 1, 2, start, start + 20_000_000_000, host_busy=0.02
    )


def requests(windows):
    """Two requests per window: one finished, one timed out without a token count."""
    n = 2 * len(windows)
    ids = np.repeat([one.id for one in windows], 2)
    ints = {
        name: np.arange(n, dtype=np.int64)
        for name in ("intended_ns", "sent_ns", "first_text_ns", "last_text_ns", "ended_ns", "longest_gap_ns", "chunks")
    }
    ints["first_text_ns"] = np.where(np.arange(n) % 2 == 1, -1, ints["first_text_ns"])
    tokens = np.where(np.arange(n) % 2 == 1, np.nan, 50.0)
    kmax = 5
    return Requests(
        window_id=ids,
        index=np.arange(n) % 2,
        class_code=(np.arange(n) % 3).astype(np.int16),
        outcome_code=np.where(np.arange(n) % 2 == 1, list(Outcome).index(Outcome.TIMED_OUT), 0).astype(np.int8),
        tokens=tokens,
        prompt_tokens=np.full(n, 100.0),
        cached_tokens=np.full(n, np.nan),
        spec_steps=tokens / 2,
        spec_drafted=tokens,
        spec_accepted=tokens / 2,
        class_names=CLASSES,
        spec_reached=np.full((n, kmax), 10.0),
        spec_at_risk=np.full((n, kmax), np.nan),
        prompt_ids=("first", "=HYPERLINK(1)"),
        prompt_code=np.arange(n) % 2,
        **ints,
    )


def curve(arm, load, class_name):
    rates = RATES.get(class_name or "code", (0.7, 0.6, 0.52, 0.47, 0.43))[: K[arm]]
    if arm == "ngram-k3":
        rates = tuple(rate * 0.7 for rate in rates)
    joint = np.cumprod(rates)
    steps = 12_000.0
    length = 1 + float(joint.sum())
    coverage = 0.41 if arm == "ngram-k3" else 1.0
    conditional = tuple(share(rate) for rate in rates)
    if class_name == "tools" and arm == "ngram-k3":
        conditional = (*conditional[:-1], Undefined("position 3 was never proposed"))
    return Curve(
        arm,
        load,
        class_name,
        "per-request detailed",
        K[arm],
        steps,
        steps * K[arm],
        steps * float(joint.sum()),
        BLOCKS,
        96,
        tuple(share(float(value)) for value in joint),
        conditional,
        interval(length, 0.01),
        share(float(joint.sum()) / K[arm], 0.01),
        share(coverage, 0.01) if coverage < 1 else Interval(1.0, 1.0, 1.0, 0.95, "t over boots", BLOCKS),
        interval(1 + coverage * (length - 1), 0.01),
    )


def contrast(candidate, load, class_name, measure):
    if class_name == "tools" and candidate == "ngram-k3":
        ratio = Undefined("fewer than two blocks with this class", 1)
    else:
        factor = CLASS_FACTOR.get(class_name, 1.0)
        ratio = interval(GAIN[candidate, load] * factor, 0.033 if class_name is None else 0.07)
    return Contrast(candidate, load, class_name, measure, ratio, ((0, 0.1), (1, 0.12)), 0.02, class_name is not None)


def analysis():
    measures = {"interactive": ("time_per_job", "output_tokens_per_s"), "pool": ("jobs_per_s", "output_tokens_per_s")}
    base = {
        ("interactive", "time_per_job"): 1.52,
        ("interactive", "output_tokens_per_s"): 61.4,
        ("pool", "jobs_per_s"): 4.81,
        ("pool", "output_tokens_per_s"): 412.0,
    }
    levels = []
    for (load, measure), value in base.items():
        for arm in ARMS:
            gain = GAIN.get((arm, load), 1.0)
            level = value / gain if measure == "time_per_job" else value * gain
            levels.append(Level(arm, load, None, measure, interval(level, 0.02), ((0, level), (1, level))))
    return Analysis(
        blocks=(
            *(BlockState(i, True, False, "", (*ARMS[i % 5 :], *ARMS[: i % 5])) for i in range(BLOCKS)),
            BlockState(BLOCKS, False, False, "ngram-k3 failed", (*ARMS[4:], *ARMS[:4])),
        ),
        arms=ARMS,
        loads=LOADS,
        classes=CLASSES,
        curves=tuple(curve(arm, load, name) for load in LOADS for name in (None, *CLASSES) for arm in K),
        levels=tuple(levels),
        contrasts=tuple(
            contrast(arm, load, name, measure)
            for load in LOADS
            for measure in measures[load]
            for name in (None, *CLASSES)
            for arm in K
        ),
        summaries=tuple(summary(arm, load) for load in LOADS for arm in ARMS),
        findings=(
            Finding(FindingCode.HOST_BUSY, Severity.DOUBT, "block 2, eagle3-k3, pool", "14 % of the host"),
            Finding(FindingCode.HOST_BUSY, Severity.DOUBT, "block 3, baseline, pool", "11 % of the host"),
            Finding(FindingCode.ENGINE_FAILED, Severity.NOTE, "block 5, ngram-k3", "out of memory", arm="ngram-k3"),
        ),
        settings_differences=(
            ("num_gpu_blocks", "eagle3-k1", "1000", "900", True),
            ("num_gpu_blocks", "ngram-k3", "1000", "900", True),
        ),
    )


def summary(arm, load):
    latency = (
        ("ttft", (("mean", 24.1), ("median", 23.0), ("std", 3.2), ("p95", 31.0))),
        ("tpot", (("mean", 16.2), ("median", 16.0), ("std", 0.8))),
        ("itl", (("mean", 31.7), ("median", 30.9), ("std", 6.1))),
        ("e2el", (("mean", 1520.0), ("median", 1490.0), ("std", 210.0))),
    )
    outcomes = (("finished", 92), ("cut_at_limit", 3), ("timed_out", 1))
    return ArmSummary(arm, load, None, BLOCKS, 96, 95, 1, outcomes, 9600.0, 8890.0, 145.2, 90, latency)


def primary(candidate, load, status):
    ratio = interval(GAIN[candidate, load], 0.05, level=0.9827)
    measure = "time_per_job" if load == "interactive" else "jobs_per_s"
    return Gate("primary", measure, status, ratio, 1.05, 0.9827)


def judged(candidate, load, decision, reason, status):
    gates = (
        primary(candidate, load, status),
        Gate("output_length", "output_tokens_per_job", GateStatus.MET, interval(1.002, 0.008), 0.97, 0.95),
        Gate(
            "failed_requests",
            "failed_requests",
            GateStatus.MET,
            Interval(0.0, -0.002, 0.003, 0.95, "exact", BLOCKS),
            0.005,
            0.95,
        ),
    )
    needed = (9, 14) if reason is Reason.PRIMARY_UNDECIDED else None
    look = None if decision is Decision.HOLD else BLOCKS
    return CandidateVerdict(candidate, decision, reason, "primary", gates, look, (), needed)


def verdict():
    met, missed, undecided = GateStatus.MET, GateStatus.MISSED, GateStatus.UNDECIDED
    promote, hold, reject = Decision.PROMOTE, Decision.HOLD, Decision.REJECT
    interactive = ObjectiveVerdict(
        "interactive",
        "interactive",
        "time_per_job",
        0.05,
        promote,
        "eagle3-k3",
        "eagle3-k3",
        (
            judged("eagle3-k1", "interactive", promote, Reason.GAIN_SHOWN, met),
            judged("eagle3-k3", "interactive", promote, Reason.GAIN_SHOWN, met),
            judged("eagle3-k5", "interactive", promote, Reason.GAIN_SHOWN, met),
            judged("ngram-k3", "interactive", hold, Reason.PRIMARY_UNDECIDED, undecided),
        ),
        0.9827,
        0.05,
    )
    pool = ObjectiveVerdict(
        "background pool",
        "pool",
        "jobs_per_s",
        0.05,
        hold,
        None,
        "eagle3-k1",
        (
            judged("eagle3-k1", "pool", hold, Reason.PRIMARY_UNDECIDED, undecided),
            judged("eagle3-k3", "pool", reject, Reason.GAIN_EXCLUDED, missed),
            judged("eagle3-k5", "pool", reject, Reason.GAIN_EXCLUDED, missed),
            judged("ngram-k3", "pool", reject, Reason.GAIN_EXCLUDED, missed),
        ),
        0.9827,
        0.05,
    )
    findings = (Finding(FindingCode.BLOCKS_INCOMPLETE, Severity.DOUBT, "block 5", "ngram-k3 failed"),)
    fingerprint = {"engine": "vllm 0.32.0", "target": {"model": "org/target-8b", "revision": None}, "cpu": "EPYC 9554"}
    return Verdict(
        "agent-pool", promote, (interactive, pool), "not measured", BLOCKS, 1, (4, 6, 8, 12), findings, fingerprint
    )


HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m[bold]**b**|=1+1`</td>\u202e"


def hostile():
    """The same study with markup in everything that comes from outside."""
    old, analysed, judged_ = study()
    identity = replace(old.boots[0].identity, model=HOSTILE, version=HOSTILE, settings={HOSTILE: HOSTILE, "dtype": "x"})
    boots = (
        replace(old.boots[0], identity=identity, failure=HOSTILE, log_path=HOSTILE, command=(HOSTILE,)),
        *old.boots[1:],
    )
    plan = {**old.header.plan, "target": {"model": HOSTILE, "revision": None}}
    header = replace(old.header, provenance={HOSTILE: {HOSTILE: HOSTILE}}, plan=plan)
    columns = replace(old.requests, class_names=(HOSTILE, "chat", "tools"), prompt_ids=(HOSTILE, "second"))
    bad = Finding(FindingCode.ENGINE_FAILED, Severity.FORBIDS, HOSTILE, HOSTILE)
    renamed = replace(
        analysed,
        classes=(HOSTILE, *CLASSES[1:]),
        curves=tuple(
            replace(one, class_name=HOSTILE if one.class_name == "code" else one.class_name) for one in analysed.curves
        ),
        contrasts=tuple(
            replace(one, class_name=HOSTILE if one.class_name == "code" else one.class_name)
            for one in analysed.contrasts
        ),
        findings=(*analysed.findings, bad),
        settings_differences=((HOSTILE, "eagle3-k1", HOSTILE, HOSTILE, False),),
    )
    named = replace(judged_.objectives[0], objective=HOSTILE)
    return (
        replace(old, header=header, boots=boots, requests=columns),
        renamed,
        replace(judged_, study=HOSTILE, objectives=(named, judged_.objectives[1]), fingerprint={HOSTILE: [HOSTILE]}),
    )
