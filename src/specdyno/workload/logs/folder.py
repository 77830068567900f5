"""The folder of an import: `CLASS.jsonl`, `sessions.jsonl`, `workload.yaml`, `import.json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import yaml

from specdyno import __version__
from specdyno.workload.logs.classify import CLASSES
from specdyno.workload.logs.files import Log
from specdyno.workload.logs.rebuild import Reader
from specdyno.workload.logs.redact import Redactor
from specdyno.workload.logs.tally import MEASURES, Tally, quantiles

ACCOUNT = "import.json"
SESSIONS = "sessions.jsonl"
PIECE = "workload.yaml"
QUANTILES = (0.1, 0.5, 0.9, 0.99, 1.0)
_CHARACTERS_PER_TOKEN = 4.0
_LEAST_LIMIT = 16
_ASSUMED_LIMIT = 256
_WRITTEN_AT_ONCE = 1024 * 1024


def write(
    into: Path, tally: Tally, *, logs: Sequence[Log], reader: Reader, redactor: Redactor | None
) -> dict[str, Any]:
    """Writes the rows and the account of an import into an empty folder."""
    kept: dict[str, int] = {}
    for name in CLASSES:
        places = tally.samples[name].places()
        if places:
            kept[name] = _write_rows(into / f"{name}.jsonl", reader.prompts(places), redactor)
    left_out: dict[str, int] = {}
    chains = tally.sessions.chains()
    sessions = _write_rows(into / SESSIONS, reader.sessions(chains, left_out), redactor) if chains else 0
    if not sessions:
        (into / SESSIONS).unlink(missing_ok=True)
    account = _account(tally, logs, kept=kept, sessions=sessions, left_out=left_out)
    account["redacted"] = dict(sorted(redactor.counts.items())) if redactor is not None else None
    (into / ACCOUNT).write_bytes(orjson.dumps(account, option=orjson.OPT_INDENT_2) + b"\n")
    return account


def _write_rows(path: Path, rows: Iterable[dict[str, Any]], redactor: Redactor | None) -> int:
    written = 0
    with path.open("wb", buffering=_WRITTEN_AT_ONCE) as file:
        for row in rows:
            file.write(orjson.dumps(redactor.request(row) if redactor is not None else row) + b"\n")
            written += 1
    if not written:
        path.unlink()
    return written


def _account(
    tally: Tally, logs: Sequence[Log], *, kept: Mapping[str, int], sessions: int, left_out: Mapping[str, int]
) -> dict[str, Any]:
    shares = tally.shares()
    return {
        "specdyno": __version__,
        "logs": [log.name for log in logs],
        "rows": tally.rows,
        "batch_results_joined": tally.joined,
        "requests": tally.requests,
        "duplicates": tally.duplicates,
        "refused": [
            {"reason": reason, "rows": count, "first": [{"log": logs[file].name, "line": line} for file, line in lines]}
            for reason, (count, lines) in sorted(tally.refused.items(), key=lambda entry: (-entry[1][0], entry[0]))
        ],
        "formats": dict(tally.formats.most_common()),
        "models": {name or "not stated": count for name, count in tally.models.most_common(50)},
        "languages": dict(tally.languages.most_common()),
        "first_unix_s": tally.first_s,
        "last_unix_s": tally.last_s,
        "classes": {
            name: {
                "requests": tally.counts[name],
                "share": share,
                "kept": kept.get(name, 0),
                "max_tokens": max_tokens(tally, name)[0],
                "max_tokens_from": max_tokens(tally, name)[1],
                **{measure: _spread(tally.lengths.get((name, measure))) for measure in MEASURES},
            }
            for name, share in shares.items()
        },
        "sessions": {
            "count": tally.sessions.count,
            "requests": tally.sessions.requests,
            "kept": sessions,
            "turns": _spread(tally.sessions.turns),
            "left_out": dict(left_out),
        },
        "sampling": _sampling(tally),
        "redacted": None,
    }


def _spread(counts: Counter[int] | None) -> dict[str, float] | None:
    """How a length is spread over the requests that state it; None where none does."""
    if not counts:
        return None
    known = sum(counts.values())
    values = quantiles(counts, QUANTILES)
    mean = sum(value * count for value, count in counts.items()) / known
    return {"known": known, "mean": round(mean, 1)} | {
        f"p{part * 100:g}": value for part, value in zip(QUANTILES, values, strict=True)
    }


def max_tokens(tally: Tally, name: str) -> tuple[int, str]:
    """A limit that 99 % of the class's answers stay within, and what it was taken from."""
    tokens = tally.lengths.get((name, "output_tokens"))
    characters = tally.lengths.get((name, "answer_characters"))
    limits = Counter({limit: count for (code, limit), count in tally.limits.items() if CLASSES[code] == name and limit})
    if tokens:
        found, source = quantiles(tokens, (0.99,))[0], "output tokens"
    elif characters:
        found, source = round(quantiles(characters, (0.99,))[0] / _CHARACTERS_PER_TOKEN), "characters of the answers"
    elif limits:
        return min(limits.most_common(1)[0][0], 1_000_000), "the limit most requests state"
    else:
        return _ASSUMED_LIMIT, "nothing: the log states no length"
    return min(max(_LEAST_LIMIT, -(-found // 16) * 16), 1_000_000), source


def _sampling(tally: Tally) -> list[dict[str, Any]]:
    found = [(orjson.loads(key), count) for key, count in tally.sampling.most_common(20)]
    return [{**values, "share": count / tally.requests} for values, count in found]


def piece(account: Mapping[str, Any], shown_as: Path) -> str:
    """The `workload` of a plan, with the shares, limits and sampling of the log."""
    states = account["sampling"]
    usual: Mapping[str, Any] = next((one for one in states if _allowed(one)), {})
    sampling: dict[str, Any] = {"temperature": usual.get("temperature", 1.0)}
    sampling |= {key: usual[key] for key in ("top_p", "stop") if key in usual}
    classes = [
        {"name": name, "prompts": str(shown_as / f"{name}.jsonl"), "share": share, "max_tokens": found["max_tokens"]}
        for (name, found), share in zip(account["classes"].items(), _to_one(account["classes"]), strict=True)
        if found["kept"]
    ]
    notes = [f"Taken from a log of {account['requests']} requests; paths are relative to where the plan lies."]
    if "temperature" not in usual:
        notes.append("Most requests state no temperature: 1.0 stands for the server's default, which you should check.")
    if len(states) > 1:
        shown = f"{usual.get('share', 0):.1%}" if usual else "none"
        notes.append(f"The sampling is that of {shown} of the requests; import.json lists the others.")
    notes += [
        f"{name}: max_tokens from {found['max_tokens_from']}"
        for name, found in account["classes"].items()
        if found["max_tokens_from"] != "output tokens"
    ]
    text = "".join(f"# {note}\n" for note in notes)
    text += yaml.safe_dump(
        {"workload": {"sampling": sampling, "classes": classes}}, sort_keys=False, allow_unicode=True
    )
    if account["sessions"]["kept"]:
        limit = max(found["max_tokens"] for found in account["classes"].values())
        text += (
            "# For a load with `sessions`, add this class:\n"
            f"#   - {{name: sessions, sessions: {shown_as / SESSIONS}, share: 1.0, max_tokens: {limit}}}\n"
        )
    return text


def _allowed(sampling: Mapping[str, Any]) -> bool:
    """Whether a plan may state it."""
    return bool(0 <= sampling.get("temperature", 1.0) <= 2 and 0 < sampling.get("top_p", 1.0) <= 1)


def _to_one(classes: Mapping[str, Mapping[str, Any]]) -> list[float]:
    """Shares of the classes that have prompts, rounded so that they add up to 1."""
    whole = sum(found["requests"] for found in classes.values() if found["kept"])
    shares = [max(round(found["requests"] / whole, 6), 1e-6) if found["kept"] else 0.0 for found in classes.values()]
    largest = shares.index(max(shares))
    shares[largest] = round(shares[largest] + 1.0 - sum(shares), 6)
    return shares
