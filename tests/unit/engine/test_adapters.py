"""What holds for every product: flags that are refused, keys that are on no command line, advice, deployment."""

from __future__ import annotations

import json
import sys

import pytest
from tests.unit.engine.arms import BASELINE, KEY, adapter, argv, arm

from specdyno.engine.base import api_key, flatten, user_flags
from specdyno.engine.llamacpp import LlamaCppAdapter
from specdyno.engine.simulated.adapter import SimulatedAdapter
from specdyno.engine.vllm import VllmAdapter
from specdyno.errors import PlanError
from specdyno.plan.schema import NOT_RUN_HERE, Engine, EngineKind, Method, Target


def test_python_stands_for_this_interpreter():
    words = argv(adapter("vllm", command=["env", "{python}", "-m", "x"]))
    assert words[:4] == ["env", sys.executable, "-m", "x"]


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
        ("sglang", "model-path", "target.model"),
        ("sglang", "speculative_num_steps", "candidates"),
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


LACKING = {
    "llamacpp": (Method.EAGLE, Method.SUFFIX, Method.PARD, Method.MEDUSA),
    "sglang": (Method.SUFFIX, Method.PARD, Method.MEDUSA),
    "trtllm": (Method.EAGLE, Method.GEMMA4_MTP, Method.MEDUSA),
}


@pytest.mark.parametrize(
    ("kind", "method"), [(kind, method) for kind, lacking in LACKING.items() for method in lacking]
)
def test_a_method_that_a_product_lacks_is_a_mistake_in_the_plan(kind, method):
    with pytest.raises(PlanError, match=f"no method {method}"):
        adapter(kind, command=["serve-it"]).flags(arm(method), 1, boot_seed=0)


@pytest.mark.parametrize("kind", NOT_RUN_HERE)
def test_an_adapter_that_was_never_run_says_so(kind):
    assert adapter(kind).read_from == NOT_RUN_HERE[kind] == Engine(kind=kind).read_from
    spoken = {"start": ["true", "{method}"], "speaks": kind}
    assert Engine(kind="external", external=spoken).read_from == NOT_RUN_HERE[kind]
    assert adapter("vllm").read_from is Engine(kind="vllm").read_from is None


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


@pytest.mark.parametrize("kind", NOT_RUN_HERE)
def test_a_product_that_takes_its_key_otherwise_has_it_on_no_command_line_and_in_no_file(monkeypatch, kind):
    monkeypatch.setenv("MY_KEY", KEY)
    launch = adapter(kind, api_key_env="MY_KEY").launch(arm(Method.EAGLE3), 8123)
    assert KEY not in " ".join(launch.argv) + launch.config + repr(launch)
    assert KEY not in launch.env.values()


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
        (
            "Value error, Target and draft model should have the same vocabulary size. Target model vocab_size=49152.",
            "family",
        ),
        ("Value error, Model architectures ['DFlashLlamaForCausalLM'] are not supported for now.", "out of the path"),
        (
            "ValueError: Following weights were not initialized from checkpoint: {'model.mtp_layers.30'}",
            "upload that has",
        ),
        ("AssertionError: Tried to load weights of size torch.Size([576, 1728])to a parameter", "differ in size"),
        ("NotImplementedError: Unsupported speculative method: 'mtp'", "no MTP layers"),
        ("Value error, Model Runner V1 does not support: dspark speculative decoding", "V2 runner"),
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
