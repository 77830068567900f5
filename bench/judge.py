"""How long `judge` takes, and how much memory, on a study of a million requests.

    python bench/judge.py [requests] [folder]

Writes a study (12 blocks, 4 arms, 2 loads, 4 classes) through the store once, then reads and judges it in a fresh
process and prints seconds and peak memory of each step.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from specdyno.plan.schema import Load, Plan, Role
from specdyno.records import provenance
from specdyno.records.schema import (
    BootStatus,
    CounterSample,
    Identity,
    Outcome,
    RequestRecord,
    Series,
    SpecSteps,
    StudyHeader,
    WindowKind,
)
from specdyno.records.store import Store

BLOCKS, MS = 12, 1_000_000
STEPS = 20  # drafted steps per answer: how long an answer is does not matter to `judge`, how many there are does
CLASSES = ("code", "chat", "tools", "structured")
PLAN = {
    "study": "a million requests",
    "target": {"model": "org/target"},
    "engine": {"kind": "simulated"},
    "candidates": [{"method": "eagle3", "draft": "org/draft", "draft_tokens": [1, 3, 5]}],
    "workload": {
        "sampling": {"temperature": 0.0},
        "classes": [{"name": n, "prompts": f"builtin:{n}", "share": 0.25, "max_tokens": 512} for n in CLASSES],
    },
    "loads": [
        {"name": "pool", "concurrency": 16, "window": "60s"},
        {"name": "crowd", "concurrency": 64, "window": "60s"},
    ],
    "objectives": [
        {"name": "pool", "load": "pool", "measure": "jobs_per_s"},
        {"name": "crowd", "load": "crowd", "measure": "output_tokens_per_s"},
    ],
}


How = tuple[int, float, np.random.Generator]  # the clock, the boot's pace, chance


def write(path: Path, requests: int) -> int:
    plan = Plan.model_validate(PLAN)
    in_force = plan.model_dump(mode="json")
    header = StudyHeader(in_force, "", provenance.plan_sha256(in_force), 0, provenance.collect())
    rng = np.random.default_rng(1)
    arms = plan.arms()
    per_window = requests // (BLOCKS * len(arms) * len(plan.loads))
    with Store.create(path, header) as store:
        now = 1_000 * MS
        for block in range(BLOCKS):
            for position, arm in enumerate(arms):
                boot = store.begin_boot(
                    block=block, arm=arm.name, attempt=0, position=position, started_ns=now, started_unix_ns=now,
                    identity=Identity("simulated", "1", "org/target", arm.role is Role.CANDIDATE,
                                      arm.method and arm.method.value, arm.draft_tokens, arm.draft),
                )  # fmt: skip
                pace = float(np.exp(rng.normal(0, 0.01))) / (1 + 0.05 * (arm.draft_tokens or 0))
                for load in plan.loads:
                    now = write_window(store, boot, (block, load, arm.draft_tokens or 0), per_window, (now, pace, rng))
                store.update_boot(boot, status=BootStatus.COMPLETE, ready_ns=now, ended_ns=now, ended_unix_ns=now)
    return BLOCKS * len(arms) * len(plan.loads) * per_window


def write_window(store: Store, boot: int, of: tuple[int, Load, int], count: int, how: How) -> int:
    (block, load, k), (now, pace, rng) = of, how
    window = store.begin_window(
        boot, load=load.name, kind=WindowKind.MIXED, class_name=None, concurrency=load.concurrency, planned=count,
        started_ns=now,
    )  # fmt: skip
    lists = np.random.default_rng([block, load.concurrency])
    lengths, names = 2 + lists.poisson(200, count), lists.integers(0, len(CLASSES), count)
    free, rows = np.full(load.concurrency, now), []
    store.add_counter_sample(window, "before", sample(now, 0), "")
    for index in range(count):
        slot = int(free.argmin())
        sent, tokens = int(free[slot]), int(lengths[index])
        accepted = rng.integers(0, k + 1, STEPS).tolist()
        step = int(10 * MS * pace)
        stamps = tuple(range(sent + 20 * MS, sent + 20 * MS + 20 * step, step))
        free[slot] = stamps[-1] + tokens * MS // 10
        spec = SpecSteps("vllm per-request detailed", STEPS, STEPS * k, sum(accepted), k, None, tuple(accepted),
                         (k,) * STEPS) if k else None  # fmt: skip
        rows.append(
            RequestRecord(
                index, f"{block}/{index}", "", CLASSES[names[index]], sent, sent, Outcome.FINISHED, stamps[0],
                int(free[slot]), stamps, (20,) * len(stamps), 200, "", 100, tokens, 0, finish_reason="stop", spec=spec,
            )
        )  # fmt: skip
    store.add_requests(window, rows)
    now = int(free.max()) + MS
    store.add_counter_sample(window, "after", sample(now, int(lengths.sum())), "")
    store.end_window(window, ended_ns=now, client_lag_max_ns=MS, host_busy=0.0)
    return now + MS


def sample(stamp: int, tokens: int) -> CounterSample:
    return CounterSample(stamp, "simulated", (Series("generation_tokens", (), float(tokens)),), process_start=1.0)


def judge(path: Path) -> None:
    began = time.perf_counter()
    from specdyno.verdict.decide import judge as judge_records  # noqa: PLC0415 - the import is part of the time
    from specdyno.verdict.schema import to_json  # noqa: PLC0415

    imported = time.perf_counter()
    with Store.open(path, write=False) as store:
        records = store.read_study()
    read = time.perf_counter()
    analysis, verdict = judge_records(records)
    judged = time.perf_counter()
    text = to_json(verdict, analysis)
    done = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({
        "requests": len(records.requests), "outcome": verdict.outcome.value, "verdict_bytes": len(text),
        "import_s": round(imported - began, 2), "read_s": round(read - imported, 2),
        "judge_s": round(judged - read, 2), "json_s": round(done - judged, 2), "all_s": round(done - began, 2),
        "processor_s": round(time.process_time(), 2),
        "peak_mib": round(peak),
    }))  # fmt: skip


def main() -> None:
    if sys.argv[1:2] == ["--judge"]:
        judge(Path(sys.argv[2]))
        return
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(sys.argv[2] if len(sys.argv) > 2 else scratch) / f"bench-{requests}.sqlite"
        if not path.exists():
            began = time.perf_counter()
            written = write(path, requests)
            print(f"wrote {written:,} requests in {time.perf_counter() - began:.0f} s, {path.stat().st_size >> 20} MiB")
        subprocess.run([sys.executable, __file__, "--judge", str(path)], check=True)


if __name__ == "__main__":
    main()
