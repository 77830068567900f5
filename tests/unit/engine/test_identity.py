"""Who the engine says it is, out of recorded answers; odd answers say nothing and raise nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdyno.engine import llamacpp
from specdyno.engine.base import Answers
from specdyno.engine.llamacpp import LlamaCppAdapter
from specdyno.engine.sglang import SglangAdapter
from specdyno.engine.simulated.adapter import SimulatedAdapter
from specdyno.engine.trtllm import TrtllmAdapter
from specdyno.engine.vllm import VllmAdapter
from specdyno.plan.schema import Engine, EngineKind, Target

DATA = Path(__file__).parents[2] / "data" / "engines"
INFO = "/server_info?config_format=json"
MODELS = {"object": "list", "data": [{"id": "served-name", "object": "model"}]}
VLLM = VllmAdapter(Engine(kind=EngineKind.VLLM), Target(model="m"))
LLAMA = LlamaCppAdapter(Engine(kind=EngineKind.LLAMACPP), Target(model="m"))
SGLANG = SglangAdapter(Engine(kind=EngineKind.SGLANG), Target(model="m"))
TRTLLM = TrtllmAdapter(Engine(kind=EngineKind.TRTLLM), Target(model="m"))
SIMULATED = SimulatedAdapter(Engine(kind=EngineKind.SIMULATED), Target(model="m"))


def recorded(name: str):
    text = (DATA / name).read_text(encoding="utf-8")
    return json.loads(text) if name.endswith(".json") else text


@pytest.fixture(autouse=True)
def _no_packaged_llamacpp(monkeypatch):
    def missing(name: str) -> str:
        raise llamacpp.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(llamacpp.importlib.metadata, "version", missing)


def test_vllm_is_read_from_its_resolved_configuration():
    answers = {"/v1/models": MODELS, "/version": {"version": "0.32.0"}, INFO: recorded("vllm_server_info.json")}
    identity = VLLM.identity(Answers(answers, recorded("vllm_start.txt")))
    assert (identity.engine, identity.version, identity.model) == ("vllm", "0.32.0", "served-name")
    assert (identity.speculation, identity.method, identity.draft_tokens) == (True, "eagle3", 3)
    assert identity.draft == "org/draft"
    assert identity.source == "/server_info"
    assert identity.settings == {
        "model_config.model": "org/model",
        "model_config.dtype": "torch.bfloat16",
        "model_config.max_model_len": 2048,
        "cache_config.block_size": 16,
        "cache_config.enable_prefix_caching": False,
        "parallel_config.tensor_parallel_size": 1,
        "runner": "V1",
    }


def test_a_vllm_baseline_says_that_it_does_not_speculate():
    info = recorded("vllm_server_info.json")
    info["vllm_config"]["speculative_config"] = None
    identity = VLLM.identity(Answers({INFO: info}, ""))
    assert (identity.speculation, identity.method, identity.draft_tokens, identity.draft) == (False, None, None, None)
    assert "runner" not in identity.settings  # no log, nothing said


@pytest.mark.parametrize(
    ("line", "setting", "value"),
    [
        ("Model Runner V2 does not yet support suffix decoding; using the V1 model runner instead.", "runner", "V1"),
        ("(EngineCore pid=1) INFO [cuda.py:1] Using FLASH_ATTN attention backend out of potential backends: []",
         "attention_backend", "FLASH_ATTN"),
        ("Using AttentionBackendEnum.TRITON_ATTN backend.", "attention_backend", "TRITON_ATTN"),
        ("compilation_config={'cudagraph_mode': <CUDAGraphMode.FULL_AND_PIECEWISE: (2, 1)>}", "graph_mode",
         "FULL_AND_PIECEWISE"),
    ],
)  # fmt: skip
def test_what_only_the_log_says_belongs_to_the_settings(line, setting, value):
    started = "Initializing a V1 LLM engine (v0.32.0) with config: model='m', speculative_config=None\n"
    for answers in ({}, {INFO: recorded("vllm_server_info.json")}):
        assert VLLM.identity(Answers(answers, started + line)).settings[setting] == value


def test_what_the_log_does_not_say_is_not_reported():
    started = "Initializing a V1 LLM engine (v0.32.0) with config: model='m', speculative_config=None\n"
    settings = VLLM.identity(Answers({}, started)).settings
    assert settings == {"runner": "V2 unless the environment says otherwise"}


def test_vllm_is_read_from_its_log_where_it_does_not_tell():
    identity = VLLM.identity(Answers({"/v1/models": MODELS, "/version": None, INFO: None}, recorded("vllm_start.txt")))
    assert (identity.version, identity.speculation, identity.method) == ("0.32.0", True, "eagle3")
    assert (identity.draft, identity.draft_tokens) == ("org/draft", 3)
    assert identity.source == "start-up log"


@pytest.mark.parametrize(("model", "draft"), [("None", None), ("'ngram'", "ngram")])
def test_a_draft_without_a_model_is_read_from_the_log(model, draft):
    line = "LLM engine (v0.32.0) with SpeculativeConfig(method='ngram', "
    identity = VLLM.identity(Answers({}, f"{line}model={model}, num_spec_tokens=5)"))
    assert (identity.method, identity.draft, identity.draft_tokens) == ("ngram", draft, 5)


def test_a_vllm_baseline_is_seen_in_its_log():
    line = "Initializing a V1 LLM engine (v0.32.0) with config: model='m', speculative_config=None"
    assert VLLM.identity(Answers({}, line)).speculation is False


def test_a_silent_vllm_is_not_said_to_run_without_speculation():
    identity = VLLM.identity(Answers({}, ""))
    assert (identity.speculation, identity.version, identity.source) == (None, None, "")


def llama_answers(*, slots=None) -> Answers:
    pages = {
        "/v1/models": MODELS,
        "/props": recorded("llamacpp_props.json"),
        "/slots": recorded("llamacpp_slots.json") if slots is None else slots,
        "/metrics": recorded("llamacpp_metrics.txt"),
    }
    return Answers(pages, "")


def test_llamacpp_is_read_from_its_slots_and_counters():
    identity = LLAMA.identity(llama_answers())
    assert (identity.engine, identity.version, identity.model) == ("llama.cpp", "b11434-abcdef0", "served-name")
    assert (identity.speculation, identity.method, identity.draft_tokens) == (True, "ngram", 2)
    assert identity.settings["n_ctx"] == 2048
    assert identity.settings["slot_n_ctx"] == 1024
    assert not [key for key in identity.settings if "speculative" in key]


@pytest.mark.parametrize(
    ("types", "method"),
    [
        ("draft-eagle3", "eagle3"),
        ("draft-simple", "draft_model"),
        ("draft-mtp", "mtp"),
        ("ngram-mod", "ngram"),
        ("none,draft-dflash", "dflash"),
        ("none", None),
        ("", None),
    ],
)
def test_llamacpps_types_have_neutral_names(types, method):
    slots = [{"speculative": True}, {"speculative": True, "params": {"speculative.types": types}}]
    assert LLAMA.identity(llama_answers(slots=slots)).method == method


def test_a_llamacpp_that_serves_without_speculation_is_found_out():
    slots = [{**slot, "speculative": False} for slot in recorded("llamacpp_slots.json")]
    identity = LLAMA.identity(llama_answers(slots=slots))
    assert identity.speculation is False
    assert identity.method is None


def test_without_slots_llamacpps_speculation_is_unknown():
    assert LLAMA.identity(llama_answers(slots=[])).speculation is None


def test_the_settings_of_two_boots_do_not_depend_on_what_a_slot_served():
    served = recorded("llamacpp_slots.json")
    fresh = [{"id": slot["id"], "n_ctx": slot["n_ctx"], "speculative": True} for slot in served]
    assert LLAMA.identity(llama_answers()).settings == LLAMA.identity(llama_answers(slots=fresh)).settings


def test_the_simulated_engine_tells_its_truth():
    spec = {"method": "eagle3", "num_speculative_tokens": 2, "model": "d"}
    info = {"engine": "simulated", "speculative_config": spec, "settings": {"max_num_seqs": 4, "time_scale": 0.1}}
    identity = SIMULATED.identity(
        Answers({"/server_info": info, "/v1/models": MODELS, "/version": {"version": "1"}}, "")
    )
    assert (identity.speculation, identity.method, identity.draft_tokens, identity.draft) == (True, "eagle3", 2, "d")
    assert identity.settings["settings.max_num_seqs"] == 4
    assert SIMULATED.identity(Answers({"/server_info": {"speculative_config": None}}, "")).speculation is False


odd = st.none() | st.text(max_size=4) | st.integers() | st.lists(st.none() | st.text(max_size=2), max_size=2)
odd |= st.dictionaries(
    st.sampled_from(
        ["data", "version", "params", "default_generation_settings", "speculative", "speculative_algorithm"]
    ),
    odd,
)
odd |= st.lists(odd, max_size=2)


@pytest.mark.parametrize("made", [VLLM, LLAMA, SGLANG, TRTLLM, SIMULATED], ids=lambda made: made.name)
@given(data=st.data())
def test_no_odd_answer_raises(made, data):
    pages = {path: data.draw(odd, label=path) for path in (*made.questions, "/server_info")}
    assert made.identity(Answers(pages, "")).engine == made.name
