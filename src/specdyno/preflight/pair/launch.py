"""Rules on how the engine is asked: its methods and runners, formats, names in paths, parallelism, context."""

from __future__ import annotations

import os
import shlex

from specdyno.plan.methods import NEEDS_DRAFT, Method
from specdyno.preflight.checkpoints.schema import Format
from specdyno.preflight.pair import architectures
from specdyno.preflight.pair.mtp import mtp_entry, mtp_layers
from specdyno.preflight.pair.rule import Judged, Pair, failed, passed, unknown, warned
from specdyno.preflight.pair.support import TABLE, methods_of

_V1_ONLY = frozenset({Method.SUFFIX, Method.PARD, Method.MEDUSA})
_WITH_TARGET = frozenset({Method.EAGLE3, Method.DFLASH, Method.DSPARK})  # converted beside their target
_ONE_LAYER = 1


def method_supported(pair: Pair) -> Judged | None:
    """The engine has the method at all."""
    entry = TABLE[pair.kind][pair.method]
    if entry.supported is None:
        return unknown(f"{entry.note or 'not known'}")
    if not entry.supported:
        note = f" ({entry.note})" if entry.note else ""
        known = f"It has: {', '.join(methods_of(pair.kind))}"
        return failed(f"{pair.engine_name} has no {pair.method}{note}", known)
    return passed(f"{pair.engine_name}'s {entry.name}")


def file_format(pair: Pair) -> Judged | None:
    """llama.cpp reads GGUF files, the others read Hugging Face's layout."""
    drafting = pair.method in NEEDS_DRAFT
    wrong = Format.HUGGING_FACE if pair.kind == "llamacpp" else Format.GGUF
    named = [("target", pair.target, pair.target_name)]
    named += [("draft", pair.draft, pair.draft_name or "")] if drafting else []
    found = [(role, name) for role, checkpoint, name in named if checkpoint.format is wrong]
    if not found:
        return passed(str(pair.target.format).replace("_", " "))
    role, name = found[-1]
    if wrong is Format.GGUF:
        return failed(
            f"the {role} is a GGUF file, which {pair.engine_name} does not load", f"Name the {role}'s original folder"
        )
    beside = role == "draft" and pair.method in _WITH_TARGET
    target = " --target-model-dir TARGET_FOLDER" if beside else ""
    return failed(
        f"the {role} is a Hugging Face folder, llama.cpp reads GGUF files",
        f"Convert it: python convert_hf_to_gguf.py {shlex.quote(name)} --outfile {role}.gguf{target}",
    )


def path_words(pair: Pair) -> Judged | None:
    """No word in the draft's path makes vLLM derive another method from it, whatever was asked for."""
    if pair.method in architectures.KEPT:
        return None
    name = pair.draft_name or pair.target_name
    for word, derived in architectures.PATH_WORDS:
        if word in name.lower():
            return failed(
                f'"{name}" holds "{word}", from which vLLM would make the method {derived}',
                f'Rename, copy or link the folder so that its path is without "{word}" (a hub id: download it first)',
            )
    return passed("no such word")


def method_derived(pair: Pair) -> Judged | None:
    """Nor does the draft's model type or architecture make vLLM derive another method."""
    names = set(pair.of_draft.architectures)
    if names & architectures.DRAFTS[Method.DSPARK]:
        derived = "dspark"
    elif "MuseGlimmerAssistantModel" in names:
        derived = "dflash"
    elif pair.of_draft.model_type in {"medusa", "mlp_speculator"}:
        derived = str(pair.of_draft.model_type)
    elif _becomes_mtp(pair):
        derived = "mtp"
    else:
        return passed("nothing in its configuration stands for another method")
    kind = pair.of_draft.architectures[0] if names else pair.of_draft.model_type
    return failed(f"vLLM makes every draft of {kind} {derived}", f"Use method {derived}, or another draft")


def _becomes_mtp(pair: Pair) -> bool:
    entry = mtp_entry(pair.draft) if pair.draft.format is Format.HUGGING_FACE else None
    return entry is not None and (not entry.if_announced or bool(mtp_layers(pair.draft)))


def architecture_known(pair: Pair) -> Judged | None:
    """The engine can load this kind of draft for this method."""
    if pair.kind == "llamacpp":
        return _gguf_architecture(pair)
    names = _vllm_names(pair)
    known = architectures.DRAFTS[pair.method]
    if not names:
        return unknown("the draft's configuration names no architecture")
    if names[0] not in known:
        remedy = f"Compare config.json with the published one; known are {', '.join(sorted(known)[:4])}, …"
        return failed(f"vLLM knows no {pair.method} draft {names[0]}", remedy)
    return passed(names[0])


def _vllm_names(pair: Pair) -> tuple[str, ...]:
    """The architectures that vLLM looks up: it renames, and reads the speculators format in its own way."""
    names, draft = pair.of_draft.architectures, pair.of_draft
    if pair.method is Method.MEDUSA:
        return ("MedusaModel",)  # whatever the file says
    if draft.speculators_type is not None:
        method, by_type = architectures.SPECULATORS.get(draft.speculators_type, (None, {}))
        omni = tuple(name for name in names if name in architectures.DRAFTS[Method.DSPARK])
        if method is Method.DSPARK and omni:
            return omni
        found = by_type.get(draft.model_type or "llama", by_type.get("*"))
        return (found or f"{draft.speculators_type} of {draft.model_type}",)
    if pair.method is Method.DSPARK:
        deepseek = "DSparkV41DraftModel" if pair.of_target.model_type == "deepseek_v41" else "DSparkDraftModel"
        own = names[:1] if names and names[0] in architectures.DRAFTS[Method.DSPARK] else ()
        return own or ((deepseek,) if "deepseek" in (draft.model_type or "") else names)
    prefix = architectures.PREFIXES[pair.method]
    kept = "LiLiCorrDraftModel"
    return tuple(
        name
        if name.startswith(prefix) or (name.endswith(prefix) and prefix != "Eagle") or name == kept
        else prefix + name
        for name in names
    )


def _gguf_architecture(pair: Pair) -> Judged | None:
    if pair.draft.format is not Format.GGUF:
        return None  # file_format says so
    found, wanted = pair.draft.model_type, architectures.GGUF_DRAFTS[pair.method]
    if found != wanted:
        return failed(f'the file\'s architecture is "{found}", a {pair.method} draft\'s "{wanted}"', "Name that draft")
    markov = pair.of_draft.markov_rank is not None
    if wanted == "dflash" and pair.draft.tensors is not None and markov is not (pair.method is Method.DSPARK):
        other = Method.DSPARK if markov else Method.DFLASH
        return failed(f"the file {'has a' if markov else 'has no'} Markov head", f"Use method {other}")
    return passed(f"{found}")


def hidden_states_handed_out(pair: Pair) -> Judged | None:
    """The target's class in vLLM hands out the hidden states of inner layers."""
    if pair.method is Method.EAGLE3 and not pair.of_draft.aux_hidden_states:
        return None
    names = pair.of_target.architectures
    if not names:
        return unknown("the target's configuration names no architecture")
    if names[0] in architectures.HANDS_OUT_HIDDEN_STATES:
        return passed(names[0])
    if names[0] in architectures.KEEPS_HIDDEN_STATES:
        return failed(
            f"vLLM's {names[0]} hands out no hidden states of inner layers",
            f"Use a method that needs none (draft_model, ngram, mtp), not {pair.method}",
        )
    return unknown(f"{names[0]} is not among vLLM's own models: its Transformers backend decides")


def runner_available(pair: Pair) -> Judged | None:
    """Of vLLM's two model runners the one that has the method can be had."""
    forced = pair.engine.env.get("VLLM_USE_V2_MODEL_RUNNER", os.environ.get("VLLM_USE_V2_MODEL_RUNNER"))
    needs = _needs_v2(pair)
    if needs is None:
        p_eagle = pair.method is Method.EAGLE3 and pair.option("parallel_drafting")
        if (pair.method in _V1_ONLY or p_eagle) and forced == "1":
            return failed(f"VLLM_USE_V2_MODEL_RUNNER=1, and only the V1 runner has {pair.method}", "Unset the variable")
        return passed(f"{TABLE['vllm'][pair.method].runner}")
    if forced == "0":
        return failed(f"{needs} needs the V2 runner, and VLLM_USE_V2_MODEL_RUNNER is 0", "Unset the variable")
    if pair.installed.vllm_on_cpu and not pair.installed.triton_on_cpu:
        return failed(
            f"{needs} needs the V2 runner, and vLLM's CPU build has none without a Triton backend for the CPU",
            "Run it on a GPU, or put such a backend on PYTHONPATH (with TRITON_INTERPRET=1)",
        )
    if not pair.installed.found:
        return warned(f"{needs} needs the V2 runner, which vLLM chooses where Triton works (on a GPU)")
    return passed(f"{needs} needs V2")


def _needs_v2(pair: Pair) -> str | None:
    if pair.method is Method.DSPARK:
        return "dspark"
    if pair.method is not Method.DFLASH:
        return None
    kind = pair.of_draft.speculators_type
    if kind == "dflash2" or set(pair.of_draft.architectures) & architectures.V2_DRAFTS:
        return "this kind of DFlash draft"
    if len(set(pair.of_draft.layer_kinds)) > 1:
        return "a DFlash draft of sliding and full layers"
    return None


def right_on_cpu(pair: Pair) -> Judged | None:
    """A DFlash draft of one layer, or a GPU: vLLM's CPU build gives each layer the norm weights of the first."""
    if not pair.installed.vllm_on_cpu or (pair.of_draft.layers or 0) <= _ONE_LAYER:
        return None
    return warned(
        f"{pair.of_draft.layers} layers on vLLM's CPU build, whose norm kernel applies the first one's weights to all",
        "Answers stay right; take the acceptance from a GPU",
    )


def package_present(pair: Pair) -> Judged | None:
    """Suffix decoding needs arctic-inference beside vLLM."""
    if not pair.installed.found:
        return unknown("the engine's packages cannot be seen from here")
    names = [name for name in pair.installed.packages if name.startswith("arctic_inference")]
    if not names:
        return failed("arctic-inference is not installed beside vLLM", "pip install arctic-inference==0.1.1")
    return passed(f"{names[0]} {pair.installed.packages[names[0]]}")


def draft_tensor_parallel(pair: Pair) -> Judged | None:
    """A draft is split over one rank or over as many as the target."""
    if pair.option("tensor_parallel_size") is not None:
        return failed("options.tensor_parallel_size is refused by vLLM", "Write draft_tensor_parallel_size")
    asked = pair.option("draft_tensor_parallel_size")
    target = pair.arg("tensor_parallel_size", "tp") or 1
    if asked is None:
        return None
    if asked not in (1, target):
        return failed(f"draft_tensor_parallel_size is {asked}, the target's {target}", f"Write 1 or {target}")
    if pair.method in (Method.DRAFT_MODEL, Method.PARD) and asked != target:
        return warned(
            f"draft_tensor_parallel_size is {asked}, the target's {target}: the V1 runner refuses that",
            "Leave it out",
        )
    return passed(f"{asked} of {target}")


def mrope(pair: Pair) -> Judged | None:
    """Draft models with positions in several sections are refused by vLLM's V1 runner."""
    if not pair.of_draft.sections_of_rope:
        return None
    seen = "the draft has M-RoPE positions, which vLLM's V1 runner refuses"
    if pair.installed.vllm_on_cpu or pair.method is Method.PARD:
        return failed(seen, "Use a text-only draft")
    return warned(seen, "Use a text-only draft if vLLM chooses V1")


def context_length(pair: Pair) -> Judged | None:
    """A draft model's own context holds what the target is asked to hold."""
    asked = pair.arg("max_model_len", "ctx_size", "c", "context_length", "max_seq_len")
    wanted = asked if isinstance(asked, int) and not isinstance(asked, bool) else pair.of_target.context_tokens
    own = pair.of_draft.context_tokens
    if not wanted or own is None:  # llama.cpp's 0 means the model's own
        return unknown("the context of target or draft is not stated")
    if own < wanted:
        return warned(
            f"the draft was trained for {own:,} tokens, {wanted:,} are planned: beyond, it drafts badly or not at all",
            f"Plan at most {own:,} tokens (max-model-len), or use another draft",
        )
    return passed(f"{own:,} of {wanted:,} planned")
