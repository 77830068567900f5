"""What an external engine's commands become, who speaks for it, and which secrets a plan may not hold."""

from __future__ import annotations

import sys

import pytest
from tests.unit.engine.arms import BASELINE, KEY

from specdyno.engine import server
from specdyno.engine.credentials import exposed
from specdyno.engine.external import ExternalAdapter
from specdyno.errors import PlanError
from specdyno.plan.external import Speaks
from specdyno.plan.schema import Arm, Engine, Role, Target

EAGLE = Arm(name="eagle3-k3", role=Role.CANDIDATE, method="eagle3", draft="org/draft", draft_tokens=3)


def adapter(*start: str, **keys) -> ExternalAdapter:
    engine = Engine(kind="external", external={"start": start, **keys})
    made = server.adapter(engine, Target(model="org/model"))
    assert isinstance(made, ExternalAdapter)
    return made


def test_placeholders_are_filled_within_words_and_no_shell_reads_them() -> None:
    words = ("env", "{python}", "--m={method}", "{draft}", "K={draft_tokens}", "{port}", "{model}", "{arm}", "$HOME")
    made = adapter(*words, stop=["true", "{port}"], base_url="http://h:{port}/")
    launch = made.launch(EAGLE, 8123)
    assert launch.argv == (
        *("env", sys.executable, "--m=eagle3", "org/draft", "K=3", "8123", "org/model", "eagle3-k3", "$HOME"),
    )
    assert launch.base_url == "http://h:8123"
    assert launch.outside is not None
    assert launch.outside.stop == ("true", "8123")
    assert made.launch(BASELINE, 8123).argv[2:5] == ("--m=none", "", "K=0")


@pytest.mark.parametrize("word", ["{{json .State}}", "{{port}}", "${port}", '{"port": 1}', "{}", "{a b}"])
def test_braces_of_shells_templates_and_json_are_left_alone(word: str) -> None:
    assert adapter("true", "{method}", word).launch(BASELINE, 8123).argv[2] == word


def test_options_are_filled_in_as_json() -> None:
    arm = EAGLE.model_copy(update={"options": {"a": 1}})
    assert adapter("true", "{options}").launch(arm, 1).argv[1] == '{"a": 1}'
    assert adapter("true", "{options}").launch(BASELINE, 1).argv[1] == "{}"
    with pytest.raises(PlanError, match="options"):
        adapter("true", "{method}").flags(arm, 1, boot_seed=0)


def test_what_to_deploy_is_the_whole_command_with_its_port_left_open() -> None:
    assert adapter("true", "{method}", "{port}").deployment(EAGLE) == ("true", "eagle3", "{port}")


@pytest.mark.parametrize("speaks", list(Speaks))
def test_the_spoken_product_says_where_its_counters_and_its_identity_are(speaks: Speaks) -> None:
    made = adapter("true", "{method}", speaks=speaks)
    assert (made.metrics_path, made.questions) == (made.spoken.metrics_path, made.spoken.questions)
    assert made.ready_path == ("/v1/models" if speaks is Speaks.OPENAI else "/health")
    assert made.request_fields(EAGLE) == made.spoken.request_fields(EAGLE)
    assert bool(made.request_fields(EAGLE)) is (speaks is Speaks.SGLANG)


def test_a_person_is_told_what_to_start() -> None:
    made = adapter(human=True)
    told = [launch.outside.told for launch in (made.launch(BASELINE, 1), made.launch(EAGLE, 1)) if launch.outside]
    assert told == ["org/model without speculation", "org/model with eagle3, draft org/draft, 3 draft tokens"]


# ---- secrets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "word",
    [
        *("Authorization: Bearer sk-1", "authorization: bearer sk-1", "--api-key", "--api_key=x", "-hft"),
        *("HF_TOKEN=hf_1", "-eHF_TOKEN=hf_1", "--env=VLLM_API_KEY=x", "env A=1 MY_PASSWORD=x"),
    ],
)
def test_a_secret_in_a_command_is_refused_with_its_place(word: str) -> None:
    with pytest.raises(PlanError) as caught:
        adapter("true", "{method}", word)
    (problem,) = caught.value.problems
    assert problem.place == "engine.external.start[2]"
    assert word not in str(problem)


@pytest.mark.parametrize(
    "word",
    [
        *("Authorization: Bearer $KEY", "Authorization: Bearer ${KEY}", "HF_TOKEN=$HF_TOKEN", "HF_TOKEN", "-eHF_TOKEN"),
        *("--max-tokens=5", "num_draft_tokens=3", "HF_TOKEN=", 'exec serve --api-key "$KEY"', "MONKEY_PATCH=1"),
    ],
)
def test_a_name_or_a_variable_is_no_secret(word: str) -> None:
    assert adapter("true", "{method}", word).launch(BASELINE, 1).argv[2] == word


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        ({"kind": "vllm", "command": ["serve", f"--x={KEY}"]}, "engine.command[1]"),
        ({"kind": "vllm", "args": {"x": KEY}}, "engine.args.x"),
        ({"kind": "sglang", "env": {"X": f"a {KEY}"}}, "engine.env.X"),
        ({"kind": "external", "external": {"start": ["true"], "stop": ["true", KEY]}}, "engine.external.stop[1]"),
        ({"kind": "external", "external": {"start": ["true"], "ready": ["true", KEY]}}, "engine.external.ready[1]"),
    ],
)
def test_the_keys_own_value_is_found_wherever_it_stands(
    monkeypatch: pytest.MonkeyPatch, keys: dict, place: str
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    (problem,) = exposed(Engine(api_key_env="MY_KEY", **keys))
    assert problem.place == place
    assert KEY not in str(problem)


def test_a_short_key_is_not_found_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "EMPTY")
    assert exposed(Engine(kind="vllm", api_key_env="MY_KEY", args={"x": "EMPTY"})) == []


def test_an_external_engine_gets_the_key_by_inheritance_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    engine = Engine(kind="external", api_key_env="MY_KEY", external={"start": ["true", "{method}"], "speaks": "vllm"})
    launch = server.adapter(engine, Target(model="m")).launch(EAGLE, 1)
    assert launch.env == {}
    assert launch.environment()["MY_KEY"] == KEY
    assert KEY not in " ".join(launch.argv) + repr(launch)
