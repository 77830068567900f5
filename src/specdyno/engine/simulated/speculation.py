"""The speculative configuration as the engine resolves it from `--speculative-config`.

Owns the keys and methods that are accepted and the manners of refusal, after vLLM 0.32: the draft length is required
but for `suffix`, methods with a draft need its `model`, unknown keys are errors. Reads no draft: any name will do.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from specdyno.engine.simulated.faults import Fault, Faults

_WITH_DRAFT = frozenset({"draft_model", "eagle", "eagle3", "medusa", "dflash"})
_WITHOUT_DRAFT = frozenset({"ngram", "ngram_gpu", "suffix"})
_EITHER = frozenset({"mtp", "dspark"})
_DEFAULT_DRAFT_TOKENS = {"suffix": 24}
_LONGEST_DRAFT = 128
_KEYS = frozenset(
    {
        "method",
        "model",
        "num_speculative_tokens",
        "draft_tensor_parallel_size",
        "quantization",
        "moe_backend",
        "attention_backend",
        "kv_cache_dtype",
        "max_model_len",
        "revision",
        "code_revision",
        "draft_load_config",
        "enforce_eager",
        "disable_padded_drafter_batch",
        "disable_eagle_block_drop",
        "use_local_argmax_reduction",
        "use_heterogeneous_vocab",
        "prompt_lookup_min",
        "prompt_lookup_max",
        "parallel_drafting",
        "suffix_decoding_max_tree_depth",
        "suffix_decoding_max_cached_requests",
        "suffix_decoding_max_spec_factor",
        "suffix_decoding_min_token_prob",
        "rejection_sample_method",
        "draft_sample_method",
    }
)


@dataclass(frozen=True, slots=True)
class Speculation:
    """What is in force: method, draft and K (`draft_tokens`)."""

    method: str
    model: str | None
    draft_tokens: int
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"SpeculativeConfig(method={self.method!r}, model={self.model!r}, num_spec_tokens={self.draft_tokens})"

    def as_json(self) -> dict[str, Any]:
        """Under the keys of `--speculative-config`."""
        named = {"method": self.method, "model": self.model, "num_speculative_tokens": self.draft_tokens}
        return {**named, **self.options}


def parse_speculation(text: str) -> Speculation:
    """The configuration written as JSON on the command line.

    Raises:
        ValueError: not an object, an unknown key or method, no draft or draft length where one is needed.
    """
    try:
        keys = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"--speculative-config is no JSON: {error}") from None
    if not isinstance(keys, dict):
        raise ValueError("--speculative-config must be a JSON object")  # noqa: TRY004 - bad input of a user
    keys = {name.replace("-", "_"): value for name, value in keys.items()}
    if unknown := sorted(keys.keys() - _KEYS):
        raise ValueError(f"SpeculativeConfig: unexpected keyword {', '.join(unknown)}")
    model = keys.pop("model", None)
    method = keys.pop("method", None) or ("ngram" if model in (None, "ngram") else "draft_model")
    if method not in _WITH_DRAFT | _WITHOUT_DRAFT | _EITHER:
        raise ValueError(f"SpeculativeConfig: unknown method {method!r}")
    if method in _WITH_DRAFT and not model:
        raise ValueError(f"SpeculativeConfig: method {method!r} needs model")
    draft_tokens = _draft_tokens(keys.pop("num_speculative_tokens", _DEFAULT_DRAFT_TOKENS.get(method)))
    return Speculation(method, None if method in _WITHOUT_DRAFT else model, draft_tokens, keys)


def _draft_tokens(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _LONGEST_DRAFT:
        raise ValueError(f"SpeculativeConfig: num_speculative_tokens must be 1 to {_LONGEST_DRAFT}, not {value!r}")
    return value


def in_force(configured: Speculation | None, faults: Faults) -> Speculation | None:
    """What the engine runs and reports, after the faults that bend it."""
    if configured is None:
        return Speculation("ngram", None, 3) if Fault.BASELINE_SPECULATES in faults else None
    if Fault.WRONG_K in faults:
        return replace(configured, draft_tokens=int(faults[Fault.WRONG_K]))
    return configured
