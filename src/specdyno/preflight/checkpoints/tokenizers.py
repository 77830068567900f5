"""Tokenizer and chat template of a Hugging Face folder, as far as pairs and fingerprints need them.

Reads the files as data: no tokenizer is built and no text is encoded. What is there but not readable without its own
library (a sentencepiece model, Mistral's tekken) is a gap, never a guess.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from specdyno.preflight.checkpoints.files import Files, load_object, parse_object, wrong
from specdyno.preflight.checkpoints.schema import Tokenizer

_CLOSED = ("tokenizer.model", "tekken.json", "spiece.model", "vocab.txt")


@dataclass(frozen=True, slots=True)
class Text:
    """Everything about text that the files state."""

    tokenizer: Tokenizer | None
    template_sha256: str | None
    shows_tools: bool | None = None
    gaps: tuple[str, ...] = ()


def read(files: Files, config: Mapping[str, Any]) -> Text:
    """Tokenizer and template hash. PlanError for a file that is there and broken; `config` is config.json."""
    names = files.names()
    settings = load_object(files, "tokenizer_config.json") if "tokenizer_config.json" in names else {}
    templates = _templates(files, names, settings)
    digest = sha256_text(templates["default"]) if "default" in templates else None
    tools = speak_of_tools(templates.values())
    extra = _decoder_ids(settings)
    if "added_tokens.json" in names:
        extra |= _ids(load_object(files, "added_tokens.json"))
    source = next((name for name in ("tokenizer.json", "vocab.json") if name in names), None)
    if source is None:
        return Text(None, digest, tools, (_gap(files, names),))
    raw = files.whole(source)
    table = parse_object(raw, f"{files.place}/{source}")
    kind, ids = ("BPE", _ids(table)) if source == "vocab.json" else _fast(table, files.place)
    ids = {**ids, **extra}
    special = load_object(files, "special_tokens_map.json") if "special_tokens_map.json" in names else {}
    bos, eos = (_special(role, (settings, special), config, ids) for role in ("bos", "eos"))
    return Text(Tokenizer(ids, kind, bos, eos, hashlib.sha256(raw).hexdigest()), digest, tools)


def sha256_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _gap(files: Files, names: frozenset[str]) -> str:
    for name in _CLOSED:
        if name in names:
            return f"the tokenizer of {files.place} is {name} alone, which is not read here: token ids are unknown"
    return f"{files.place} holds no tokenizer file: token ids are unknown"


def _fast(table: Mapping[str, Any], place: str) -> tuple[str | None, dict[str, int]]:
    """Kind and ids of tokenizer.json: vocabulary as a map (BPE, WordPiece, WordLevel) or as a list (Unigram)."""
    model = table.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, dict):
        ids = _ids(vocabulary)
    elif isinstance(vocabulary, list):
        ids = {
            entry[0]: number
            for number, entry in enumerate(vocabulary)
            if isinstance(entry, list) and entry and isinstance(entry[0], str)
        }
    else:
        raise wrong(f"{place}/tokenizer.json holds no vocabulary (model.vocab)", "Fetch the tokenizer again")
    added = table.get("added_tokens")
    for entry in added if isinstance(added, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("content"), str) and type(entry.get("id")) is int:
            ids[entry["content"]] = entry["id"]
    kind = model.get("type") if isinstance(model, dict) else None
    return (kind if isinstance(kind, str) else None), ids


def _ids(table: Mapping[str, Any]) -> dict[str, int]:
    return {text: number for text, number in table.items() if type(number) is int}


def _decoder_ids(settings: Mapping[str, Any]) -> dict[str, int]:
    """Added tokens as tokenizer_config.json lists them: id, as text, to description."""
    listed = settings.get("added_tokens_decoder")
    return {
        entry["content"]: int(number)
        for number, entry in (listed.items() if isinstance(listed, dict) else ())
        if isinstance(entry, dict) and isinstance(entry.get("content"), str) and number.isdecimal() and len(number) < 10
    }


def _special(
    role: str, tables: Iterable[Mapping[str, Any]], config: Mapping[str, Any], ids: Mapping[str, int]
) -> str | None:
    for table in tables:
        token = table.get(f"{role}_token")
        if isinstance(token, dict):
            token = token.get("content")
        if isinstance(token, str):
            return token
    number = config.get(f"{role}_token_id")
    if isinstance(number, list):
        number = number[0] if number else None
    return next((text for text, other in ids.items() if other == number), None) if type(number) is int else None


def speak_of_tools(templates: Iterable[str]) -> bool | None:
    """Whether any of a model's chat templates names tools or functions; None where there is no template.

    One that names neither cannot show a request's tools: engines then leave them out without a word.
    """
    found = [any(word in template.lower() for word in ("tool", "function")) for template in templates]
    return any(found) if found else None


def _templates(files: Files, names: frozenset[str], settings: Mapping[str, Any]) -> dict[str, str]:
    """Chat templates by name, usually `default` alone; the file of its own goes first, as in transformers."""
    if "chat_template.jinja" in names:
        return {"default": files.whole("chat_template.jinja").decode("utf-8", "surrogateescape")}
    stated = settings.get("chat_template")
    if stated is None and "chat_template.json" in names:
        stated = load_object(files, "chat_template.json").get("chat_template")
    if isinstance(stated, str):
        return {"default": stated}
    listed = stated if isinstance(stated, list) else []
    entries = [(one.get("name"), one.get("template")) for one in listed if isinstance(one, dict)]
    return {name: text for name, text in entries if isinstance(name, str) and isinstance(text, str)}
