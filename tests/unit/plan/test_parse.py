"""Every mistake in a plan is told at once, with its line, in words; nothing but PlanError comes out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from specdyno.errors import PlanError, Problem
from specdyno.plan.parse import in_force, parse, read
from specdyno.plan.schema import Plan

GOOD = """\
study: agent-pool
target: {model: org/model}
engine: {kind: vllm, env: {OMP_NUM_THREADS: 4, HF_TOKEN: "hf_x"}}
candidates:
  - {method: ngram, draft_tokens: 3}
workload:
  sampling: {temperature: 1e-1}
  classes:
    - {name: code, prompts: builtin:code, share: 60%, max_tokens: 256}
    - {name: chat, prompts: builtin:chat, share: 0.4, max_tokens: 256}
loads:
  - {name: pool, concurrency: 16, window: 1.5m}
objectives:
  - {name: pool, load: pool, measure: jobs_per_s, minimum_gain: 3pp}
"""


def problems(text: str) -> list[Problem]:
    with pytest.raises(PlanError) as caught:
        parse(text, "plan.yaml")
    assert caught.value.source == "plan.yaml"
    return caught.value.problems


def only(text: str) -> Problem:
    found = problems(text)
    assert len(found) == 1, found
    return found[0]


def test_spellings_become_numbers() -> None:
    plan = parse(GOOD)
    assert plan.loads[0].window == 90.0
    assert plan.objectives[0].minimum_gain == 0.03
    assert plan.workload.classes[0].share == 0.6
    assert plan.workload.sampling.temperature == 0.1
    assert plan.candidates[0].draft_tokens == (3,)
    assert plan.engine.env == {"OMP_NUM_THREADS": "4", "HF_TOKEN": "hf_x"}


def test_a_recorded_plan_reads_back_equal() -> None:
    plan = parse(GOOD)
    assert Plan.model_validate(json.loads(json.dumps(plan.model_dump(mode="json")))) == plan


def test_read_gives_the_text_too(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    plan, text = read(path)
    assert (plan, text) == (parse(GOOD), GOOD)


MISTAKES = [
    ("sed: 1\n", "sed", "Did you mean seed?"),
    ("temperature: 1\n", "temperature", "It belongs at workload.sampling.temperature"),
    ("seed: true\n", "seed", "true is not a whole number"),
    ("seed: 1.5\n", "seed", "1.5 is not a whole number"),
    ("seed: -1\n", "seed", "Write a number from 0 up"),
    ("seed: 99999999999999999999999\n", "seed", "too many digits"),
    ("budget: {time: 20}\n", "budget.time", "20 has no unit"),
    ("budget: {time: 20 min}\n", "budget.time", '"20 min" is no duration'),
    ("budget: {time: 9000d}\n", "budget.time", "too large"),
    ("budget: {time: .inf}\n", "budget.time", "not a finite number"),
    ("budget: 2h\n", "budget", "Write e.g. budget: {time: 2h}"),
    ("guards:\n", "guards", "remove the key"),
    ("guards: {tpot: 5}\n", "guards.tpot", 'a percentage: "5%"'),
    ("guards: {tpot: five}\n", "guards.tpot", '"five" is no share'),
    ("guards: {tpot: true}\n", "guards.tpot", "true is not a number"),
    ("experiment: {looks: []}\n", "experiment.looks", "this is empty"),
    ("experiment: {looks: [4, six]}\n", "experiment.looks[1]", '"six" is not a whole number'),
    ("experiment: {looks: [4, 4]}\n", "experiment.looks", "not rising"),
    ("experiment: {a_a: 1}\n", "experiment.a_a", "1 is not true or false"),
    ("experiment: {accept_differences: [no]}\n", "experiment.accept_differences[0]", 'Put it in quotes: "no"'),
    ("seed: 1\nseed: 2\n", "seed", "stands twice, first on line 15"),
    ("seed: !!python/name:os.system x\n", "seed", "means nothing in a plan"),
    ("seed: 1e400\n", "seed", "not a finite number"),
]


@pytest.mark.parametrize(("line", "place", "words"), MISTAKES, ids=[case[0].strip() for case in MISTAKES])
def test_a_mistake_is_told_in_words(line: str, place: str, words: str) -> None:
    problem = only(GOOD + line)
    assert problem.place == place
    assert words in f"{problem.seen}. {problem.remedy}"
    assert problem.line == GOOD.count("\n") + line.count("\n")


EDITS = [
    ("method: ngram", "method: ngarm", "candidates[0].method", "Did you mean ngram?"),
    ("method: ngram", "method: eagle3", "candidates[0].draft", "eagle3 needs a draft"),
    ("method: ngram,", "method: ngram, draft: x,", "candidates[0].draft", "takes no draft"),
    ("draft_tokens: 3", "draft_tokens: three", "candidates[0].draft_tokens", "Write e.g. draft_tokens: [1, 3]"),
    ("draft_tokens: 3", "draft_tokens: [3, 3]", "candidates[0].draft_tokens", "stands twice"),
    ("draft_tokens: 3", "draft_tokens: 129", "candidates[0].draft_tokens", "up to 128"),
    ("{model: org/model}", "{}", "target.model", "Write e.g. model: org/model"),
    ("{model: org/model}", "org/model", "target", "is not a mapping"),
    ("share: 60%", "share: 70%", "workload.classes", "add up to 1.1"),
    ("share: 60%", "share: 0", "workload.classes[0].share", "above 0"),
    ("name: chat", "name: code", "workload.classes[1].name", "stands twice"),
    ("name: chat", "name: a/b", "workload.classes[1].name", "Begin with a letter"),
    ("load: pool", "load: poll", "objectives[0].load", "Use one of: pool"),
    (
        "temperature: 1e-1",
        "temperature: 0, extra_body: {stream: true}",
        "workload.sampling.extra_body.stream",
        "set by",
    ),
    ("kind: vllm", "kind: vllm, args: {--seed: 1}", "engine.args.--seed", "Write seed"),
    ("kind: vllm", "kind: vllm, args: {x: [1]}", "engine.args.x", "takes one value"),
    ("kind: vllm", 'kind: vllm, command: ["a\\0b"]', "engine.command[0]", "cannot be sent or stored"),
]


@pytest.mark.parametrize(("old", "new", "place", "words"), EDITS, ids=[case[1] for case in EDITS])
def test_an_edit_that_breaks_the_plan_is_told(old: str, new: str, place: str, words: str) -> None:
    assert old in GOOD
    problem = only(GOOD.replace(old, new, 1))
    assert problem.place == place
    assert words in f"{problem.seen}. {problem.remedy}"
    assert problem.line is not None


def test_twenty_mistakes_are_told_at_once() -> None:
    text = """\
study: ""
sed: 3
target: {modle: org/m}
engine: {kind: vlm, args: {--max: 1, x: [1]}, env: {A: true}, ready_timeout: 20, request_timeout: 20 min}
candidates:
  - {method: eagle3, draft_tokens: [1, three, 500]}
  - {method: eagle3, draft_tokens: [1, 1]}
  - {method: eagel, draft_tokens: []}
workload:
  sampling: {temperature: .nan, stop: "x"}
  classes:
    - {name: code, prompts: builtin:code, share: 50, max_tokens: 256}
    - {name: code, prompts: "", share: 0.5, max_tokens: 0}
loads:
  - {name: interactive, concurrency: 0, window: 20s, window: 30s}
objectives:
  - {name: o, load: pool, measure: speed}
experiment: {looks: [4, 3], a_a: "yes"}
budget: 2h
"""
    found = problems(text)
    places = {problem.place for problem in found}
    assert {
        "study", "sed", "target.model", "target.modle", "engine.kind", "engine.args.--max", "engine.args.x",
        "engine.env.A", "engine.ready_timeout", "engine.request_timeout", "candidates[0].draft_tokens[1]",
        "candidates[0].draft_tokens[2]", "candidates[1].draft", "candidates[1].draft_tokens", "candidates[2].method",
        "candidates[2].draft_tokens", "workload.sampling.temperature", "workload.sampling.stop",
        "workload.classes[0].share", "workload.classes[1].name", "workload.classes[1].prompts",
        "workload.classes[1].max_tokens", "loads[0].concurrency", "loads[0].window", "objectives[0].load",
        "objectives[0].measure", "experiment.looks", "experiment.a_a", "budget",
    } == places  # fmt: skip
    lines = [problem.line or 0 for problem in found]
    assert lines == sorted(lines)
    assert all(line > 0 for line in lines)


def test_a_secret_in_the_wrong_place_is_not_repeated() -> None:
    text = GOOD.replace("kind: vllm, env: {", "kind: vllm, api_key_env: sk-secret1, env: {KEY: [sk-secret2], ", 1)
    assert "secret" not in "".join(str(problem) for problem in problems(text))


WHOLE_FILE = [
    ("", "empty"),
    ("# a comment\n", "empty"),
    ("- a\n", "a list, not a mapping"),
    ("hello\n", "a single value, not a mapping"),
    ("a: b: c\n", "not YAML"),
    ("a:\n\tb: 1\n", "a tab stands in the indentation"),
    ("a: [1\n", "not YAML"),
    ("a: 1\n---\nb: 1\n", "a second document"),
    ("a: *b\n", "not YAML"),
    ("a: &x [*x]\n", "inside the value that it names"),
    ("\x00", "not YAML"),
    ('a: "\\UFFFFFFFF"\n', "not YAML"),
    ("[" * 5000, "deep"),
    ("a: [" + "*x, " * 60 + "]", "aliases"),
    ("a: 1\n" * 100_000, "characters"),
    (
        "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
        + "".join(f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcde", "bcdef", strict=True)),
        "blow the plan up",
    ),
]


@pytest.mark.parametrize(("text", "words"), WHOLE_FILE, ids=[case[1] for case in WHOLE_FILE])
def test_a_file_that_is_no_plan_is_told(text: str, words: str) -> None:
    problem = only(text)
    assert words in f"{problem.seen} {problem.remedy}"


def test_files_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"study: a\nname: caf\xe9\n")
    for path, words in ((tmp_path / "none.yaml", "no file"), (tmp_path, "is a directory"), (latin, "not UTF-8")):
        with pytest.raises(PlanError, match=words) as caught:
            read(path)
        assert caught.value.exit_code == 2
    with pytest.raises(PlanError) as caught:
        read(latin)
    assert caught.value.problems[0].line == 2


def test_merge_and_complex_keys_are_refused() -> None:
    seen = [problem.seen for problem in problems(GOOD + "<<: {seed: 1}\n? [a]\n: 1\n")]
    assert seen == ["a merge (<<)", "a key that is a list or a mapping"]


def test_values_in_force_show_defaults_and_hide_secrets() -> None:
    rows = {path: (value, default) for path, value, default in in_force(parse(GOOD))}
    assert rows["engine.ready_timeout"] == ("20m", True)
    assert rows["loads[0].window"] == ("90s", False)
    assert rows["objectives[0].minimum_gain"] == ("0.03", False)
    assert rows["seed"] == ("1", True)
    assert "hf_x" not in rows["engine.env"][0]
    assert '"OMP_NUM_THREADS": "4"' in rows["engine.env"][0]


WORDS = """
study seed target engine candidates workload loads objectives guards experiment budget sampling classes name
kind args env method draft draft_tokens temperature share max_tokens concurrency window load measure looks
prompts extra_body options model time tpot
"""
KEYS = st.sampled_from(WORDS.split())
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["20s", "5%", "ngram", "vllm", "builtin:code", "pool", "jobs_per_s"])
)
NESTED = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=4), inner, max_size=6),
    max_leaves=25,
)


@given(data=st.dictionaries(KEYS, NESTED, max_size=11))
@settings(max_examples=150, deadline=None)
def test_any_nested_data_gives_a_plan_error(data: dict[str, object]) -> None:
    # Eleven top-level keys of random content never make a plan; whatever else than PlanError comes out fails here.
    with pytest.raises(PlanError) as caught:
        parse(yaml.safe_dump(data, allow_unicode=True))
    assert caught.value.problems
    assert str(caught.value).encode()


@given(
    text=st.text(alphabet=st.sampled_from("ab:-[]{}&*!|>'\"#%@?,~<=\t\n 01.e_\\Ux\u00e9\u2028\x85\ufeff"), max_size=60)
)
@example(text="!!int _")
@example(text="!!float x")
@example(text="!!bool a")
@example(text="%YAML 1." + "9" * 5000)
@example(text="a: " + "9" * 5000)
@example(text="!<%ff> a")
@settings(max_examples=300, deadline=None)
def test_any_text_gives_a_plan_error(text: str) -> None:
    with pytest.raises(PlanError) as caught:
        parse(text)
    assert str(caught.value).encode()


@given(
    start=st.integers(0, len(GOOD)),
    length=st.integers(0, 12),
    text=st.text(alphabet=st.sampled_from("a:-[]{},&*!\"' \n\t0."), max_size=6),
)
@settings(max_examples=300, deadline=None)
def test_a_good_plan_with_a_bad_edit_raises_nothing_else(start: int, length: int, text: str) -> None:
    edited = GOOD[:start] + text + GOOD[start + length :]
    found: Plan | list[Problem]
    try:
        found = parse(edited)
    except PlanError as error:
        found = error.problems
    assert isinstance(found, Plan) or all(problem.seen for problem in found)
