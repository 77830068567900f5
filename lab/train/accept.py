"""Acceptance on held-out prompts: offline from the cached states, and live, from the engine's own counters.

Offline, every place of an answer is an anchor; an engine drafts only where its last step ended, and over other prompts
if asked, so the two agree roughly. Run as a program, this module is the process that holds the engine.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import torch
from lab.train.answers import run_engine
from lab.train.hidden import Batch
from lab.train.objective import joint
from lab.train.prompts import read as read_prompts
from torch import Tensor

_LIVE_TOKENS = 128


class Checked(Protocol):
    def agreements(self, batch: Batch, draft_tokens: int) -> Tensor: ...


def offline(draft: Checked, batches: Iterable[Batch], *, draft_tokens: int) -> dict[str, object]:
    """Joint acceptance by position: the share of anchors whose first i proposals are the answer's own tokens."""
    counts, total = torch.zeros(draft_tokens, dtype=torch.long), 0
    for batch in batches:
        agreed = draft.agreements(batch, draft_tokens)
        counts += joint(agreed)
        total += len(agreed)
    return {"anchors": total, "joint": [round(int(count) / total, 4) if total else None for count in counts]}


def live(target: Path, speculation: dict[str, object], prompts: Path) -> dict[str, object]:
    """Boot vLLM with the draft and read its counters over the held-out prompts, greedy."""
    said = run_engine("lab.train.accept", str(target), json.dumps(speculation), str(prompts))
    return json.loads(next(line for line in said.splitlines() if line.startswith("{")))


def _counted(target: str, speculation: str, prompts: str) -> dict[str, object]:
    from vllm import LLM, SamplingParams  # noqa: PLC0415 (only this process needs the engine)

    engine = LLM(
        target,
        enforce_eager=True,
        max_model_len=1024,
        max_num_seqs=8,
        speculative_config=json.loads(speculation),
        disable_log_stats=False,
    )
    chats = [[{"role": "user", "content": p.text}] for p in read_prompts(Path(prompts)) if p.held_out]
    outputs = engine.chat(chats, SamplingParams(temperature=0.0, max_tokens=_LIVE_TOKENS), use_tqdm=False)
    counters = {metric.name: metric for metric in engine.get_metrics()}
    drafts = counters["vllm:spec_decode_num_drafts"].value
    accepted = counters["vllm:spec_decode_num_accepted_tokens_per_pos"].values
    return {
        "prompts": len(chats),
        "tokens": sum(len(output.outputs[0].token_ids) for output in outputs),
        "drafts": drafts,
        "joint": [round(count / drafts, 4) if drafts else None for count in accepted],
    }


if __name__ == "__main__":
    print(json.dumps(_counted(*sys.argv[1:])), flush=True)
