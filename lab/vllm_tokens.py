"""Token ids of vLLM's greedy answers, and how likely each of its tokens was, asked of a running server."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lab import forks
from specdyno.plan.schema import Sampling
from specdyno.workload.prompts import Prompt, body

LIKELIEST = 20  # as many as vLLM tells by default
_ID = "token_id:"


@dataclass(frozen=True, slots=True)
class Said:
    """An answer's tokens, its end included, and at each the log-probabilities of the likeliest, by token id."""

    ids: tuple[int, ...]
    likely: tuple[Mapping[int, float], ...]


def said(base_url: str, prompt: Prompt) -> Said:
    """The answer to `prompt` at temperature 0."""
    path, asked = body(prompt, Sampling(temperature=0.0), _model(base_url), max_tokens=prompt.max_tokens)
    asked |= {"return_token_ids": True, "return_tokens_as_token_ids": True}
    asked |= {"logprobs": True, "top_logprobs": LIKELIEST}
    choice = _fetched(base_url + path, asked)["choices"][0]
    steps = choice["logprobs"]["content"]
    return Said(
        tuple(choice["token_ids"]),
        tuple({int(one["token"].removeprefix(_ID)): one["logprob"] for one in step["top_logprobs"]} for step in steps),
    )


def audit(base_url: str, answers: Iterable[tuple[Prompt, tuple[int, ...]]]) -> list[forks.Fork]:
    """The forks of other servers' answers from those of the server at `base_url`, which must not speculate."""
    own: dict[str, Said] = {}
    found = []
    for prompt, ids in answers:
        if prompt.id not in own:
            own[prompt.id] = said(base_url, prompt)
        mine = own[prompt.id]
        if (at := forks.parting(mine.ids, ids)) is not None:
            found.append(forks.fork(prompt.id, at, (mine.ids[at], ids[at]), mine.likely[at]))
        elif len(mine.ids) != len(ids):  # ids hold the end of an answer: one of the two broke off, which is no tie
            found.append(forks.Fork(prompt.id, min(len(mine.ids), len(ids)), None, None))
    return found


def _model(base_url: str) -> str:
    return str(_fetched(f"{base_url}/v1/models")["data"][0]["id"])


def _fetched(url: str, payload: Mapping[str, object] | None = None) -> dict:
    data = None if payload is None else json.dumps(payload).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)
