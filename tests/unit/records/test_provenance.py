"""Facts about the host are written down, secrets are not."""

from __future__ import annotations

import json
import socket

import pytest

import specdyno
from specdyno.records.provenance import collect, cpu_model, plan_sha256


def test_facts_are_plain_json_and_name_this_interpreter():
    facts = collect()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["specdyno"] == specdyno.__version__
    assert facts["memory_bytes"] > 2**20
    assert facts["cores_usable"] <= facts["cores"]
    assert "numpy" in facts["packages"]


def test_host_name_is_not_written_but_its_hash_is_stable():
    facts = collect()
    assert facts["host_sha256"] == collect()["host_sha256"]
    assert socket.gethostname() not in facts["host_sha256"]


def test_only_listed_variables_are_kept():
    given = {"OMP_NUM_THREADS": "8", "VLLM_USE_V1": "1", "HOME": "/home/someone", "HF_HOME": "/cache", "PATH": "/bin"}
    assert collect(given)["environment"] == {"OMP_NUM_THREADS": "8", "VLLM_USE_V1": "1"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VLLM_API_KEY", "sk"),
        ("VLLM_ADMIN_TOKEN", "t"),
        ("VLLM_SECRET", "s"),
        ("LLAMA_ARG_PASSWORD", "p"),
        ("vllm_api_key", "sk"),
        ("VLLM_REGISTRY", "https://me:pw@host/"),
    ],
)
def test_secrets_are_never_kept(name, value):
    assert collect({name: value})["environment"] == {}


def test_cpu_model_comes_from_the_kernel_where_it_says(tmp_path):
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: EPYC 9654 : 96 cores\nmodel name\t: other\n")
    assert cpu_model(info) == "EPYC 9654 : 96 cores"
    assert cpu_model(tmp_path / "missing") != ""  # None or the platform's word, never empty


def test_plan_hash_depends_on_values_not_on_order():
    plan = {"seed": 1, "loads": [{"name": "pool", "concurrency": 16}], "study": "é\ud800"}
    same = {"study": "é\ud800", "loads": [{"concurrency": 16, "name": "pool"}], "seed": 1}
    assert plan_sha256(plan) == plan_sha256(same)
    assert plan_sha256(plan) != plan_sha256({**plan, "seed": 2})
    # sha256 of the ten bytes {"seed":1}, so that hashes of old studies keep matching
    assert plan_sha256({"seed": 1}) == "fbe47f6d82b435a89f6e6fca65ad16138195de06c5fc3ffb66826a76e64e479f"


def test_plan_with_a_number_that_is_none_has_no_hash():
    with pytest.raises(ValueError, match="Out of range"):
        plan_sha256({"share": float("nan")})
