"""llama.cpp's ways to draft (`--spec-type`): the flags of each, and the K with which one drafts other than asked.

Read in build 11434: common/arg.cpp, common/speculative.cpp, common/ngram-map.cpp. What only the draft's file tells
(a block size, a number of heads) is llama.cpp's to clamp: `llamacpp_boot` reads that it did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specdyno.engine.base import user_flags
from specdyno.engine.credentials import SECRET_FLAGS
from specdyno.errors import PlanError
from specdyno.plan.schema import Arm, Method

SPEC_TYPE = "spec-type"
NONE = "none"
_DRAFT_K = "spec-draft-n-max"
_LONGEST_NGRAM = 1024  # llama.cpp refuses larger sizes
_CACHE_K = 8  # ngram-cache drafts up to this many; no flag changes it
_USUAL_LOOKUP = 4


@dataclass(frozen=True, slots=True)
class Kind:
    """One `--spec-type`: whose method it is, and which flag holds K (None: no flag does)."""

    method: Method
    k_flag: str | None = _DRAFT_K


# In the order of preference: the first kind of a method is the one that a plan gets without saying more.
KINDS: dict[str, Kind] = {
    "ngram-simple": Kind(Method.NGRAM, "spec-ngram-simple-size-m"),
    "ngram-map-k": Kind(Method.NGRAM, "spec-ngram-map-k-size-m"),
    "ngram-map-k4v": Kind(Method.NGRAM, "spec-ngram-map-k4v-size-m"),
    "ngram-mod": Kind(Method.NGRAM, "spec-ngram-mod-n-max"),
    "ngram-cache": Kind(Method.NGRAM, None),
    "draft-simple": Kind(Method.DRAFT_MODEL),
    "draft-eagle3": Kind(Method.EAGLE3),
    "draft-mtp": Kind(Method.MTP),
    "draft-dflash": Kind(Method.DFLASH),
    "draft-dspark": Kind(Method.DSPARK),
}
_SAME_KINDS = {Method.GEMMA4_MTP: Method.MTP}  # the assistant is one more file to draft-mtp
METHODS = (*dict.fromkeys(kind.method for kind in KINDS.values()), *_SAME_KINDS)

_NOT_OPTIONS = frozenset(
    {"host", "port", "model", "m", "metrics", "slots", "no-slots", "spec-default"}
    | {"spec-draft-model", "md", "model-draft", "spec-draft-hf", "hfd", "hfrd", "hf-repo-draft"}
)


def speculative_flags(arm: Arm) -> list[str]:
    """The flags of an arm; `options` are further flags.

    PlanError where llama.cpp has no such method or kind, or the kind would not draft as the arm says.
    """
    if arm.method is None:
        return [f"--{SPEC_TYPE}", NONE]
    options = {key.replace("_", "-"): value for key, value in arm.options.items()}
    name = _kind(arm, options)
    k_flag = KINDS[name].k_flag
    _refuse_foreign(arm, k_flag)
    flags = [f"--{SPEC_TYPE}", name]
    if k_flag is not None:
        flags += [f"--{k_flag}", str(arm.draft_tokens)]
    if KINDS[name].method is Method.NGRAM:
        flags += _ngram_flags(name, arm.draft_tokens or 1, options)
    if arm.draft is not None:
        flags += ["--spec-draft-model", arm.draft]
    return flags + user_flags({key: value for key, value in options.items() if key != SPEC_TYPE})


def neutral(types: str) -> str | None:
    """The neutral name of the first kind that a slot names as its types.

    >>> neutral("none,draft-dflash"), neutral("none")
    ('dflash', None)
    """
    known = (KINDS[name].method for name in types.split(",") if name in KINDS)
    found = next(known, None)
    return None if found is None else str(found)


def _kind(arm: Arm, options: Mapping[str, Any]) -> str:
    method = _SAME_KINDS.get(arm.method, arm.method) if arm.method is not None else None
    fitting = [name for name, kind in KINDS.items() if kind.method is method]
    if not fitting:
        known = ", ".join(str(one) for one in METHODS)
        raise PlanError(f"llama.cpp has no method {arm.method}. It knows: {known}")
    name = str(options.get(SPEC_TYPE, fitting[0]))
    if name not in fitting:
        several = "one candidate drafts in one way" if "," in name else f"it is no way of {arm.method}"
        raise PlanError(
            f"candidates[].options.{SPEC_TYPE} of {arm.name} is {name}: {several}. Choose from: {', '.join(fitting)}"
        )
    return name


def _refuse_foreign(arm: Arm, k_flag: str | None) -> None:
    for key in sorted(arm.options):
        flag = key.replace("_", "-")
        if flag in _NOT_OPTIONS or flag in SECRET_FLAGS:
            raise PlanError(f"candidates[].options.{key} of {arm.name}: it does not describe a way to draft")
        if flag == k_flag:
            raise PlanError(f"candidates[].options.{key} of {arm.name}: this is K, say it in draft_tokens")


def _ngram_flags(name: str, k: int, options: Mapping[str, Any]) -> list[str]:
    if k > _LONGEST_NGRAM:
        raise PlanError(f"llama.cpp's {name} drafts at most {_LONGEST_NGRAM} tokens, not {k}. Lower draft_tokens")
    if name == "ngram-cache" and k != _CACHE_K:
        raise PlanError(
            f"llama.cpp's ngram-cache always drafts up to {_CACHE_K} tokens and no flag changes it: "
            f"say draft_tokens: [{_CACHE_K}], not {k}"
        )
    if name == "ngram-simple":
        # It drafts nothing unless K reaches the length of the n-gram it looks up (12 when not said).
        return _at_most_k("spec-ngram-simple-size-n", k, options, usual=_USUAL_LOOKUP, but="never drafts")
    if name == "ngram-mod":
        # 48 when not said: a draft that stops short of it is thrown away.
        return _at_most_k("spec-ngram-mod-n-min", k, options, usual=0, but="throws away every draft shorter than K")
    return []


def _at_most_k(flag: str, k: int, options: Mapping[str, Any], *, usual: int, but: str) -> list[str]:
    """A size that must not exceed K: `usual`, cut to K, where the plan does not say it."""
    stated = options.get(flag)
    if stated is None:
        return [f"--{flag}", str(min(k, usual))]
    if isinstance(stated, int) and stated > k:
        kind = flag.removeprefix("spec-").rsplit("-", 2)[0]
        raise PlanError(
            f"llama.cpp's {kind} {but} when K ({k}) is below {flag} ({stated}). Raise draft_tokens or lower the option"
        )
    return []
