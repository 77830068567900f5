"""The command line of the simulated engine and what it resolves to.

Owns the flags (vLLM's names where vLLM has them) and their checks; a value that cannot hold ends the process before
anything listens.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from random import SystemRandom
from typing import Any

from specdyno.engine.simulated.faults import Faults, parse_faults
from specdyno.engine.simulated.speculation import Speculation, in_force, parse_speculation
from specdyno.engine.simulated.truth import Truth, read_truth

API_KEY_VARIABLE = "SPECDYNO_SIMULATED_API_KEY"


@dataclass(frozen=True, slots=True)
class Settings:
    """One process's configuration, resolved. `speculation` is what is in force."""

    model: str
    host: str
    port: int
    truth: Truth
    faults: Faults
    speculation: Speculation | None
    boot_seed: int
    time_scale: float
    spec_metrics: str
    prompt_tokens_details: bool
    api_key: str | None
    flags: dict[str, Any]
    """Resolved flags that have nothing to do with speculation, as `/server_info` reports them."""

    @property
    def draft_tokens(self) -> int:
        return self.speculation.draft_tokens if self.speculation else 0


def read_settings(argv: Sequence[str]) -> Settings:
    """Settings from the command line; ends the process with status 2 and a message where it is wrong."""
    parser = _parser()
    given = parser.parse_args(argv)
    try:
        return _resolve(given)
    except ValueError as error:
        parser.error(str(error))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m specdyno.engine.simulated",
        description="A stand-in for an inference engine, with a known truth and no model.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--model", required=True, help="any name; reported and expected in requests")
    add("--served-model-name", help="the name requests use; default: --model")
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=8000, help="0 picks a free one and logs it")
    add("--speculative-config", metavar="JSON", help="as vLLM takes it; absent: plain decoding")
    add("--per-request-spec-decode-metrics", choices=("none", "summary", "detailed"), default="none")
    add("--max-num-seqs", type=int, default=256, help="most requests running at once; others wait")
    add("--max-model-len", type=int, default=8192)
    add("--max-num-batched-tokens", type=int, help="reported only")
    add("--dtype", default="auto", help="reported only")
    add("--seed", type=int, default=0, help="reported only")
    add("--enforce-eager", action="store_true", help="reported only")
    add("--enable-prefix-caching", action=argparse.BooleanOptionalAction, default=True)
    add("--enable-prompt-tokens-details", action="store_true", help="usage names cached prompt tokens")
    add(
        "--api-key",
        default=os.environ.get(API_KEY_VARIABLE),
        help=f"requests under /v1 must carry it as a bearer token; default: ${API_KEY_VARIABLE}",
    )
    add("--truth", action="append", default=[], metavar="JSON|@FILE", help="keys of truth.Truth; later ones win")
    add("--boot-seed", type=int, help="seed of this boot's speed, acceptance and faults; default: drawn and logged")
    add("--time-scale", type=float, default=1.0, metavar="X", help="multiplies every duration")
    add("--fault", action="append", default=[], metavar="SPEC", help="name or name:value; see faults.Fault")
    return parser


def _resolve(given: argparse.Namespace) -> Settings:
    configured = parse_speculation(given.speculative_config) if given.speculative_config else None
    if configured is None and given.per_request_spec_decode_metrics != "none":
        raise ValueError("--per-request-spec-decode-metrics needs --speculative-config")
    if not (math.isfinite(given.time_scale) and given.time_scale > 0):
        raise ValueError(f"--time-scale must be above 0, not {given.time_scale}")
    if given.max_num_seqs < 1 or given.max_model_len < 2:
        raise ValueError("--max-num-seqs must be at least 1 and --max-model-len at least 2")
    faults = parse_faults(given.fault, speculating=configured is not None)
    speculation = in_force(configured, faults)
    truth = Truth()
    for text in given.truth:
        truth = read_truth(text, base=truth)
    reported = (
        "time_scale",
        "max_num_seqs",
        "max_model_len",
        "max_num_batched_tokens",
        "dtype",
        "seed",
        "enforce_eager",
    )
    return Settings(
        model=given.served_model_name or given.model,
        host=given.host,
        port=given.port,
        truth=truth.under(speculation.method if speculation else "baseline"),
        faults=faults,
        speculation=speculation,
        boot_seed=SystemRandom().randrange(1 << 31) if given.boot_seed is None else given.boot_seed,
        time_scale=given.time_scale,
        spec_metrics=given.per_request_spec_decode_metrics,
        prompt_tokens_details=given.enable_prompt_tokens_details,
        api_key=given.api_key,
        flags={name: getattr(given, name) for name in (*reported, "enable_prefix_caching")} | {"model": given.model},
    )
