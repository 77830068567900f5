"""The tables are whole, and name what the installed vLLM has: after an upgrade a failure here says what moved.

vLLM's files are parsed, not imported. They are looked for in this interpreter's packages and in $SPECDYNO_VLLM.
"""

from __future__ import annotations

import ast
import importlib.util
import os
from functools import cache
from pathlib import Path

import pytest

from specdyno.plan.methods import Method
from specdyno.plan.schema import EngineKind
from specdyno.preflight.pair import architectures as table
from specdyno.preflight.pair.mtp import mtp_entry
from specdyno.preflight.pair.rules import NAMES, RULES
from specdyno.preflight.pair.support import NAMES as ENGINES
from specdyno.preflight.pair.support import TABLE


def test_every_engine_has_an_entry_for_every_method() -> None:
    assert set(TABLE) == set(EngineKind) == set(ENGINES)
    assert all(set(entries) == set(Method) for entries in TABLE.values())


def test_every_entry_says_where_it_was_read_and_what_it_is_called() -> None:
    for entries in TABLE.values():
        for entry in entries.values():
            assert entry.source
            assert (entry.supported is True) == bool(entry.name)
            assert entry.supported is not True or entry.lengths


def test_every_rule_has_a_name_of_its_own_a_source_and_an_explanation() -> None:
    assert len(NAMES) == len(RULES) + 1
    for rule in RULES:
        assert rule.sources
        assert set(rule.sources) <= {*EngineKind, "*"}
        assert (rule.judge.__doc__ or "").strip(), rule.name


def test_no_target_stands_in_two_mtp_entries() -> None:
    named = [name for entry in table.MTP_TARGETS for name in (*entry.model_types, *entry.architectures)]
    assert len(named) == len(set(named))


# ---- against the installed vLLM --------------------------------------------------------------------------------------


@cache
def _root() -> Path | None:
    stated = os.environ.get("SPECDYNO_VLLM")
    if stated:
        return Path(stated)
    found = importlib.util.find_spec("vllm")
    return Path(found.submodule_search_locations[0]) if found and found.submodule_search_locations else None


@pytest.fixture
def vllm() -> Path:
    root = _root()
    if root is None:
        pytest.skip("vLLM is not installed here and SPECDYNO_VLLM names no folder of it")
    return root


@cache
def _registry(root: Path) -> dict[str, dict[str, str]]:
    """Group of the registry -> architecture -> class."""
    tree = ast.parse((root / "model_executor" / "models" / "registry.py").read_text(encoding="utf-8"))
    return {
        ast.unparse(node.targets[0]): {
            key.value: ast.literal_eval(value)[1]
            for key, value in zip(node.value.keys, node.value.values, strict=True)
            if isinstance(key, ast.Constant) and isinstance(value, ast.Tuple)
        }
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
    }


@cache
def _bases(root: Path) -> dict[str, frozenset[str]]:
    """Class -> names of its bases, over all files of models; classes of one name are taken together."""
    found: dict[str, frozenset[str]] = {}
    for path in [*root.glob("model_executor/models/**/*.py"), *root.glob("models/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                named = {ast.unparse(base).split("[")[0].rpartition(".")[2] for base in node.bases}
                found[node.name] = found.get(node.name, frozenset()) | named
    return found


def _inherits(root: Path, name: str, wanted: str, seen: frozenset[str] = frozenset()) -> bool:
    if name == wanted:
        return True
    above = _bases(root).get(name, frozenset()) - seen
    return any(_inherits(root, base, wanted, seen | {name}) for base in above)


def _text_models(root: Path) -> dict[str, str]:
    groups = ("_TEXT_GENERATION_MODELS", "_MULTIMODAL_MODELS", "_TRANSFORMERS_SUPPORTED_MODELS")
    return {name: found for group in groups for name, found in _registry(root)[group].items()}


def test_targets_that_hand_out_hidden_states_are_those_of_the_installed_vllm(vllm: Path) -> None:
    models = _text_models(vllm)
    hand_out = {name for name, found in models.items() if _inherits(vllm, found, "SupportsEagle3")}
    assert hand_out == table.HANDS_OUT_HIDDEN_STATES
    assert set(models) - hand_out == table.KEEPS_HIDDEN_STATES


def test_drafts_are_those_of_the_installed_registry(vllm: Path) -> None:
    registered = set(_registry(vllm)["_SPECULATIVE_DECODING_MODELS"])
    ours = {name for names in table.DRAFTS.values() for name in names}
    ours |= {entry.draft for entry in table.MTP_TARGETS}
    assert ours <= registered
    assert registered - ours == {"ExtractHiddenStatesModel"}


def test_model_types_of_mtp_targets_stand_in_the_installed_configuration(vllm: Path) -> None:
    source = (vllm / "config" / "speculative.py").read_text(encoding="utf-8")
    function = next(
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name == "hf_config_override"
    )
    words = {
        node.value for node in ast.walk(function) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    for entry in table.MTP_TARGETS:
        assert {*entry.model_types, *entry.architectures, entry.draft} <= words, entry
        assert entry.key is None or entry.key.rpartition(".")[2] in words
    heads = {word for word in words if word.endswith(("MTP", "MTPModel")) and word[0].isupper()}
    assert heads <= {entry.draft for entry in table.MTP_TARGETS} | {"MiniMaxM3MTP"}


def test_the_words_in_a_path_are_those_of_the_installed_configuration(vllm: Path) -> None:
    source = (vllm / "config" / "speculative.py").read_text(encoding="utf-8")
    looked_for = [
        node.left.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Compare)
        and isinstance(node.left, ast.Constant)
        and "draft_model_config.model.lower()" in ast.unparse(node)
    ]
    assert sorted(looked_for) == sorted(word for word, _ in table.PATH_WORDS)


def test_speculators_types_are_those_of_the_installed_vllm(vllm: Path) -> None:
    tree = ast.parse((vllm / "transformers_utils/configs/speculators/algos.py").read_text(encoding="utf-8"))
    registered = {
        call.args[0].value
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        for call in node.decorator_list
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "register_speculator"
    }
    assert registered == set(table.SPECULATORS)


def test_neutral_methods_are_known_to_the_installed_vllm(vllm: Path) -> None:
    source = (vllm / "config" / "speculative.py").read_text(encoding="utf-8")
    words = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}
    named = {entry.name.split()[0] for entry in TABLE["vllm"].values() if entry.supported}
    assert named <= words


def test_an_mtp_target_is_found_by_architecture_before_its_model_type(tmp_path: Path) -> None:
    from tests.unit.preflight.small_pairs import llama  # noqa: PLC0415

    from specdyno.preflight.checkpoints.read import read  # noqa: PLC0415 (beside the folder that it reads)

    small = llama(architectures=["MiMoForCausalLM"], model_type="qwen3_5")
    entry = mtp_entry(read(str(small.write(tmp_path))))
    assert entry is not None
    assert entry.draft == "MiMoMTPModel"
