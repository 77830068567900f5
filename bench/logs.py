"""How long `workload import` takes beside orjson alone, and how much memory.

    python bench/logs.py [megabytes] [folder]

Writes two logs once, LiteLLM payloads whose histories grow turn by turn: `chats` (short conversations of talk, code,
tools and JSON, 8 kB a row) and `agents` (ten at a time, with many tools and up to 40 turns, 42 kB a row). Each is read
three ways, each way in fresh processes, taking turns: orjson alone (line by line), the import with one process, the
import with as many as there are cores. Prints the best of the rounds: seconds, CPU seconds, both as ratios to orjson
alone, and peak memory. On a machine that does other work too, the ratio of CPU seconds is the one to trust.
"""

import itertools
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

ROUNDS = 3
TARGET = 2.0
WORDS = (  # noqa: SIM905 - as a list, one word a line, it would be the longest thing here
    "the a of to and in that it with as for was on are by this be from or have an they which one you "
    "were all their there been has when who will more if out so said what up its about into than them "
    "can only other new some could time these two may then do first any my now such like our over man me "
    "even most made after also did many before"
).split()
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
def used(who):
    found = resource.getrusage(who)
    return found.ru_utime + found.ru_stime
if __name__ == "__main__":
    before = used(resource.RUSAGE_SELF)
    began = time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    cpu = used(resource.RUSAGE_SELF) + used(resource.RUSAGE_CHILDREN) - before
    memory = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(seconds, cpu, *memory)
"""
ORJSON = """
import orjson
def work():
    with open(sys.argv[1], "rb") as file:
        for line in file:
            orjson.loads(line)
"""
IMPORT = """
def work():
    import_logs([Path(sys.argv[1])], Path(sys.argv[2]), processes=int(sys.argv[3]))
if __name__ == "__main__":
    from pathlib import Path
    from specdyno.workload.logs.importing import import_logs
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
        yield payload(f"{number}-{turn}", messages, message, parameters=parameters, now=now)
        messages.append(message)
        if message.get("tool_calls"):
            messages.append({"role": "tool", "tool_call_id": f"call_{turn}", "content": sentence(chance, 120)})
        now += 30


def payload(
    name: str, messages: list[dict[str, Any]], message: dict[str, Any], *, parameters: dict[str, Any], now: float
) -> dict[str, Any]:
    """One request of a log: `messages` are asked, `message` answers."""
    return {
        "id": f"req-{name}",
        "trace_id": f"trace-{name}",
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


def agent(chance: random.Random, number: int, *, system: str, tools: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Payloads of one agent: tools on every request, most turns a call and its result."""
    messages = [
        {"role": "system", "content": system},
        {"role": "user", "content": f"{number}: {sentence(chance, 80)}"},
    ]
    now = 1.7e9 + number
    for turn in range(chance.randint(5, 40)):
        own_id = f"call_{number}_{turn}"
        message: dict[str, Any] = {"role": "assistant", "content": sentence(chance, 100) + code(chance, 10)}
        follows: dict[str, Any] = {"role": "user", "content": sentence(chance, 50)}
        if chance.random() < 0.8:
            arguments = json.dumps({"path": "source/part.py", "line": turn, "edit": code(chance, 5)})
            call = {"id": own_id, "type": "function", "function": {"name": "tool_1", "arguments": arguments}}
            message = {"role": "assistant", "content": sentence(chance, 20), "tool_calls": [call]}
            follows = {"role": "tool", "tool_call_id": own_id, "content": code(chance, chance.randint(5, 40))}
        parameters = {"temperature": 0.2, "max_tokens": 4096, "tools": tools}
        yield payload(f"{number}-{turn}", messages, message, parameters=parameters, now=now)
        messages += [message, follows]
        now += 5


def many_tools(chance: random.Random) -> list[dict[str, Any]]:
    def properties() -> dict[str, Any]:
        text = [{"type": "string"}, {"type": "null"}]
        return {word: {"description": sentence(chance, 12), "anyOf": text} for word in chance.sample(WORDS, 5)}

    return [
        {
            "type": "function",
            "function": {
                "name": f"tool_{number}",
                "description": sentence(chance, 80),
                "parameters": {"type": "object", "properties": properties(), "required": []},
            },
        }
        for number in range(14)
    ]


def chats(chance: random.Random) -> Iterator[dict[str, Any]]:
    for number in itertools.count():
        yield from conversation(chance, number)


def agents(chance: random.Random) -> Iterator[dict[str, Any]]:
    """Ten agents at a time, whose requests are interleaved."""
    system, tools = "".join(sentence(chance, 60) for _ in range(25)), many_tools(chance)
    ever = (agent(chance, number, system=system, tools=tools) for number in itertools.count())
    running = [next(ever) for _ in range(10)]
    while True:
        place = chance.randrange(len(running))
        row = next(running[place], None)
        if row is None:
            running[place] = next(ever)
        else:
            yield row


def write(path: Path, rows: Iterator[dict[str, Any]], megabytes: int) -> int:
    size = written = 0
    with path.open("wb") as file:
        while size < megabytes * 1_000_000:
            size += file.write(orjson.dumps(next(rows)) + b"\n")
            written += 1
    return written


def measured(body: str, path: Path, processes: int = 1) -> tuple[float, float, float]:
    """Seconds, CPU seconds, and peak memory in MiB of the process and its workers together."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "child.py"
        script.write_text(CHILD.replace("{body}", body))
        done = subprocess.run(
            [sys.executable, script, path, Path(folder) / "out", str(processes)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    seconds, cpu, own, worker = map(float, done.stdout.split())
    return seconds, cpu, (own + worker * processes) / 1024


def compare(path: Path) -> None:
    size = path.stat().st_size / 1e6
    ways = {"orjson alone": (ORJSON, 1)} | {
        f"import, {processes} process(es)": (IMPORT, processes) for processes in sorted({1, os.cpu_count() or 1})
    }
    rounds = [
        {name: measured(body, path, processes) for name, (body, processes) in ways.items()} for _ in range(ROUNDS)
    ]
    best = {name: [min(values) for values in zip(*(one[name] for one in rounds), strict=True)] for name in ways}
    alone, alone_cpu, _ = best["orjson alone"]
    for name, (seconds, cpu, memory) in best.items():
        met = "" if name == "orjson alone" else f"  {'within' if seconds <= TARGET * alone else 'above'} {TARGET:g}x"
        print(
            f"  {name:<22}{seconds:7.2f} s {seconds / alone:6.2f}x {cpu:8.2f} s CPU {cpu / alone_cpu:6.2f}x "
            f"{size / seconds:7.0f} MB/s {memory:6.0f} MiB{met}"
        )


def main() -> None:
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(tempfile.gettempdir())
    for make in (chats, agents):
        path = folder / f"specdyno-bench-{make.__name__}-{megabytes}.jsonl"
        if not path.exists():
            began = time.perf_counter()
            rows = write(path, make(random.Random(5)), megabytes)
            print(f"{rows} rows written in {time.perf_counter() - began:.0f} s: {path}")
        print(make.__name__)
        compare(path)


if __name__ == "__main__":
    main()
