"""The verbs that need neither study nor server: `init`, `check`, `read`, help and version."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.flow.command_line import plain, plan, specdyno, write_plan

from specdyno import __version__
from specdyno.plan.schema import Plan

VERBS = ("demo", "init", "check", "run", "judge", "report", "export", "settings", "measure", "read")


# ---- init, check -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["vllm", "llamacpp", "simulated"])
def test_what_init_writes_is_a_plan(tmp_path: Path, engine: str) -> None:
    path = tmp_path / "plan.yaml"
    ended = specdyno("init", path, "--engine", engine)
    assert ended.code == 0, ended
    assert f"specdyno check {path}" in ended.text
    assert Plan.model_validate(yaml.safe_load(path.read_text()) | {}).engine.kind == engine
    assert path.read_text().count("#") > 10, "it is commented"


def test_init_and_check_go_together(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    words = ["--engine", "simulated", "--target", "sim/model", "--method", "eagle3", "--draft", "sim/draft"]
    assert specdyno("init", path, *words).code == 0
    checked = specdyno("check", path)
    assert checked.code == 0, checked
    for word in ("baseline", "eagle3", "sim/draft", "Schedule", "Time", "experiment.looks", "guards.tpot"):
        assert word in checked.text
    assert plain(checked.out)


def test_init_never_overwrites_unasked(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("mine")
    refused = specdyno("init", path)
    assert refused.code == 2
    assert "--force" in refused.text
    assert path.read_text() == "mine"
    assert specdyno("init", path, "--force").code == 0
    assert path.read_text() != "mine"


def test_check_boots_nothing_and_writes_nothing(tmp_path: Path) -> None:
    path = write_plan(tmp_path / "plan.yaml", plan(experiment={"looks": [2]}))
    ended = specdyno("check", path)
    assert ended.code == 0
    assert "fewer than four blocks never promote" in ended.text
    assert [one.name for one in tmp_path.iterdir()] == ["plan.yaml"]


# ---- read ------------------------------------------------------------------------------------------------------------

LOG_LINE = (
    "INFO 12-01 10:00:00 [metrics.py:96] SpecDecoding metrics: Mean acceptance length: 2.38, Accepted throughput: "
    "10.00 tokens/s, Drafted throughput: 21.75 tokens/s, Accepted: 100 tokens, Drafted: 217 tokens, "
    "Per-position acceptance rate: 0.700, 0.450, 0.230, Avg Draft acceptance rate: 46.1%\n"
)


def test_read_shows_what_a_log_says(tmp_path: Path) -> None:
    (tmp_path / "vllm.log").write_text(LOG_LINE)
    ended = specdyno("read", tmp_path / "vllm.log")
    assert ended.code == 0, ended
    assert "0.700" in ended.text
    assert "217" in ended.text


def test_read_of_two_scrapes_shows_what_happened_between_them(tmp_path: Path) -> None:
    for name, count in (("before", 0), ("after", 100)):
        (tmp_path / name).write_text(
            "# TYPE vllm:spec_decode_num_drafts counter\n"
            f"vllm:spec_decode_num_drafts_total {100 + count}\n"
            "# TYPE vllm:spec_decode_num_draft_tokens counter\n"
            f"vllm:spec_decode_num_draft_tokens_total {300 + 3 * count}\n"
            "# TYPE vllm:spec_decode_num_accepted_tokens counter\n"
            f"vllm:spec_decode_num_accepted_tokens_total {50 + 1.5 * count}\n"
        )
    ended = specdyno("read", tmp_path / "before", tmp_path / "after")
    assert ended.code == 0, ended
    assert "2.5" in ended.text, "1 + 150 / 100"


@pytest.mark.parametrize("content", [b"", b"\x00\xff\x1b[31m\x1b]0;title\x07", b"a diary", b"{", b"[[[[" * 1000])
def test_read_of_anything_else_says_so_and_shows_no_control_character(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "odd").write_bytes(content)
    ended = specdyno("read", tmp_path / "odd")
    assert ended.code in (0, 2)
    assert ended.text
    assert plain(ended.out + ended.err)


def test_read_of_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    ended = specdyno("read", tmp_path / "none.log")
    assert ended.code == 2
    assert "none.log" in ended.text


# ---- help ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str) -> None:
    ended = specdyno(verb, "--help")
    assert ended.code == 0
    assert verb in ended.text
    assert "Usage" in ended.text


def test_help_lists_every_verb_and_version_is_the_package_s() -> None:
    listed = specdyno("--help")
    assert listed.code == 0
    assert all(verb in listed.text for verb in VERBS)
    assert specdyno("--version").out.strip() == f"specdyno {__version__}"
