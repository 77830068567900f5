"""How long `workload import` takes beside orjson alone, and how much memory.

    python bench/logs.py [megabytes] [folder]

Writes a log of chats, code, tools and JSON once (LiteLLM payloads, histories growing turn by turn), then reads it
three ways, each in a fresh process, each the better of two: orjson alone (line by line), the import with one process,
the import with as many as there are cores. Prints seconds, the ratio to orjson alone, and peak memory.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

ROUNDS = 2
TARGET = 2.0
WORDS = [
    *[
        "the",
        "a",
        "of",
        "to",
        "and",
        "in",
        "that",
        "it",
        "with",
        "as",
        "for",
        "was",
        "on",
        "are",
        "by",
        "this",
        "be",
        "from",
        "or",
        "have",
        "an",
        "they",
        "which",
        "one",
        "you",
        "were",
        "all",
        "their",
        "there",
        "been",
        "has",
        "when",
        "who",
        "will",
        "more",
        "if",
        "out",
        "so",
        "said",
        "what",
        "up",
        "its",
        "about",
        "into",
        "than",
        "them",
        "can",
        "only",
        "other",
        "new",
        "some",
        "could",
        "time",
        "these",
        "two",
        "may",
        "then",
        "do",
        "first",
        "any",
        "my",
        "now",
        "such",
        "like",
        "our",
        "over",
        "man",
        "me",
        "even",
        "most",
        "made",
        "after",
        "also",
        "did",
        "many",
        "before",
    ]
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": f"tool_{number}",
            "description": "Reads one record of the store and gives back what it holds, or says that there is none.",
            "parameters": {"type": "object", "properties": {"id": {"type": "string"}, "limit": {"type": "integer"}}},
        },
    }
    for number in range(6)
]
CHILD = """
import resource, sys, time
{body}
own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
cpu = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
print(time.perf_counter() - began, own.ru_maxrss, children.ru_maxrss, cpu)
"""
ORJSON = """
import orjson
began = time.perf_counter()
with open(sys.argv[1], "rb") as file:
    for line in file:
        orjson.loads(line)
"""
IMPORT = """
from pathlib import Path
from specdyno.workload.logs.importing import import_logs
def main():
    import_logs([Path(sys.argv[1])], Path(sys.argv[2]), processes=int(sys.argv[3]))
if __name__ == "__main__":
    began = time.perf_counter()
    main()
"""


def sentence(chance: random.Random, words: int) -> str:
    return " ".join(chance.choices(WORDS, k=words)) + chance.choice((".\n", ". ", "?", ",\n\n"))


def code(chance: random.Random, lines: int) -> str:
    body = "\n".join(f'    value_{chance.randrange(99)} = load("{chance.choice(WORDS)}", {n})' for n in range(lines))
    return f"```python\ndef step_{chance.randrange(999)}(items):\n{body}\n    return items\n```\n"


def conversation(chance: random.Random, number: int) -> Iterator[dict[str, Any]]:
    """Payloads of one conversation: each repeats the whole history, as logs do."""
    kind = chance.choice(("chat", "code", "tools", "structured"))
    messages = [{"role": "system", "content": sentence(chance, 200)}]
    now = 1.7e9 + number
    for turn in range(chance.randint(1, 8)):
        question = sentence(chance, chance.randint(20, 400)) + (code(chance, 30) if kind == "code" else "")
        messages.append({"role": "user", "content": question})
        message = {"role": "assistant", "content": sentence(chance, chance.randint(10, 250))}
        if kind == "code":
            message["content"] = code(chance, chance.randint(5, 60))
        elif kind == "structured":
            message["content"] = json.dumps({word: chance.randrange(999) for word in chance.choices(WORDS, k=20)})
        elif kind == "tools" and turn % 2 == 0:
            arguments = json.dumps({"id": str(chance.randrange(9999)), "limit": 5})
            call = {"id": f"call_{turn}", "type": "function", "function": {"name": "tool_1", "arguments": arguments}}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        parameters = {"temperature": 0.2, "max_tokens": 1024}
        if kind == "tools":
            parameters["tools"] = TOOLS
        if kind == "structured":
            parameters["response_format"] = {"type": "json_object"}
        yield {
            "id": f"req-{number}-{turn}",
            "trace_id": f"trace-{number}-{turn}",
            "call_type": "acompletion",
            "status": "success",
            "model": "org/served-model",
            "messages": messages,
            "response": {"choices": [{"index": 0, "finish_reason": "stop", "message": message}]},
            "model_parameters": parameters,
            "metadata": {"user_api_key_alias": "team", "requester_metadata": {}},
            "startTime": now,
            "endTime": now + 2,
            "prompt_tokens": sum(len(one["content"] or "") for one in messages) // 4,
            "completion_tokens": len(message["content"] or "") // 4 + 12,
        }
        messages.append(message)
        if message.get("tool_calls"):
            messages.append({"role": "tool", "tool_call_id": f"call_{turn}", "content": sentence(chance, 120)})
        now += 30


def write(path: Path, megabytes: int) -> int:
    chance = random.Random(5)
    size, number, rows = 0, 0, 0
    with path.open("wb") as file:
        while size < megabytes * 1_000_000:
            for row in conversation(chance, number):
                size += file.write(orjson.dumps(row) + b"\n")
                rows += 1
            number += 1
    return rows


def measured(body: str, *words: object) -> tuple[float, float, float]:
    """Seconds, peak memory in MiB of the process and its largest child together, CPU seconds; the fastest round."""
    found = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "child.py"
            text = CHILD.replace("{body}", body)
            if "__main__" in body:
                head, _, tail = text.partition("own, children")
                text = head + "\n".join("    " + line for line in (f"own, children{tail}").splitlines() if line)
            script.write_text(text)
            done = subprocess.run(
                [sys.executable, script, words[0], Path(folder) / "out", *map(str, words[1:])],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
        seconds, own, child, cpu = map(float, done.stdout.split())
        found.append((seconds, (own + child) / 1024, cpu))
    return min(found)


def main() -> None:
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(tempfile.gettempdir())
    path = folder / f"specdyno-bench-{megabytes}.jsonl"
    if not path.exists():
        began = time.perf_counter()
        print(f"{write(path, megabytes)} rows written in {time.perf_counter() - began:.0f} s: {path}")
    size = path.stat().st_size / 1e6
    alone, memory, cpu = measured(ORJSON, path)
    print(f"{'orjson alone':<24}{alone:8.2f} s  {size / alone:7.0f} MB/s         {memory:6.0f} MiB  {cpu:7.2f} s CPU")
    cores = os.cpu_count() or 1
    for processes in sorted({1, cores}):
        seconds, memory, cpu = measured(IMPORT, path, processes)
        met = "within" if seconds <= TARGET * alone else "above"
        print(
            f"{f'import, {processes} process(es)':<24}{seconds:8.2f} s  {size / seconds:7.0f} MB/s  "
            f"{seconds / alone:5.2f}x {memory:6.0f} MiB  {cpu:7.2f} s CPU  {met} {TARGET:g}x"
        )


if __name__ == "__main__":
    main()
