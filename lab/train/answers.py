"""The target's own greedy answers, made by the engine that the draft will run in (vLLM's offline class).

A draft learns to foresee this target in this engine, so neither the prompts' reference answers nor another
implementation's text will do. Run as a program, this module is the process that holds the engine: it ends with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lab.train.prompts import Prompt
from lab.train.prompts import read as read_prompts
from lab.train.work import Progress, WorkError, whole

ROOT = Path(__file__).resolve().parents[2]
PART = 128
_SPLITS = {"train": False, "heldout": True}


@dataclass(frozen=True)
class Answer:
    """Token ids of the rendered prompt and of the answer, end token included where it came."""

    kind: str
    prompt_tokens: tuple[int, ...]
    answer_tokens: tuple[int, ...]
    text: str


def make(target: Path, prompts: Path, folder: Path, *, max_tokens: int) -> None:
    """Write what is missing of `folder`/{train,heldout}-NNN.jsonl, each part whole or not at all."""
    if missing(read_prompts(prompts), folder):
        run_engine("lab.train.answers", str(target), str(prompts), str(folder), str(max_tokens))


def missing(prompts: Sequence[Prompt], folder: Path) -> list[tuple[Path, list[Prompt]]]:
    """The parts that are not there yet, with their prompts."""
    wanted = []
    for split, held_out in _SPLITS.items():
        chosen = [prompt for prompt in prompts if prompt.held_out == held_out]
        for place in range(0, len(chosen), PART):
            path = folder / f"{split}-{place // PART:03d}.jsonl"
            if not path.is_file():
                wanted.append((path, chosen[place : place + PART]))
    return wanted


def read(path: Path) -> list[Answer]:
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [Answer(row["kind"], tuple(row["prompt_tokens"]), tuple(row["answer_tokens"]), row["text"]) for row in rows]


def parts(folder: Path, split: str) -> list[Path]:
    return sorted(folder.glob(f"{split}-*.jsonl"))


def run_engine(module: str, *arguments: str) -> str:
    """Run a module that holds an engine in a process of its own; its standard output. WorkError where it fails."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_CPU_KVCACHE_SPACE": os.environ.get("VLLM_CPU_KVCACHE_SPACE", "2"),
    }
    lines = []
    with subprocess.Popen(
        [sys.executable, "-m", module, *arguments], env=environment, stdout=subprocess.PIPE, text=True
    ) as child:
        for line in child.stdout or ():
            lines.append(line)
            if not line.startswith("{"):
                print(line, end="", flush=True)
    if child.returncode != 0:
        raise WorkError(f"{module} ended with {child.returncode}; its last words are above")
    return "".join(lines)


def _generate(target: Path, prompts: Path, folder: Path, max_tokens: int) -> None:
    from vllm import LLM, SamplingParams  # noqa: PLC0415 (only this process needs the engine)

    wanted = missing(read_prompts(prompts), folder)
    engine = LLM(str(target), enforce_eager=True, max_model_len=1024, max_num_seqs=64)
    greedy = SamplingParams(temperature=0.0, max_tokens=max_tokens)
    progress = Progress("answers", every_s=0)
    for done, (path, chosen) in enumerate(wanted, start=1):
        chats = [[{"role": "user", "content": prompt.text}] for prompt in chosen]
        outputs = engine.chat(chats, greedy, use_tqdm=False)
        with whole(path) as partial, partial.open("w", encoding="utf-8") as file:
            for prompt, output in zip(chosen, outputs, strict=True):
                said = output.outputs[0]
                answer = Answer(prompt.kind, tuple(output.prompt_token_ids), tuple(said.token_ids), said.text)
                file.write(json.dumps(asdict(answer)) + "\n")
        progress.at(done / len(wanted), path.name)


if __name__ == "__main__":
    _generate(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
