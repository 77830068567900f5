"""A checkpoint on the hub is read by its headers alone; a failure says whether the plan or the network is wrong."""

from __future__ import annotations

import logging
import socket
import threading
import time
import traceback

import huggingface_hub
import pytest
from tests.unit.preflight.hub_imitation import COMMIT, Imitation, Repository
from tests.unit.preflight.small_checkpoint import WEIGHTS, folder, gguf_file, header, safetensors, sharded

from specdyno.errors import PlanError
from specdyno.preflight.checkpoints import hub
from specdyno.preflight.checkpoints.hub import Unreachable
from specdyno.preflight.checkpoints.read import read
from specdyno.preflight.checkpoints.schema import Format

TOKEN = "hf_SecretOfTheTestOnly"


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch, tmp_path):
    """No setting of the machine counts: own cache, no token, online (huggingface_hub reads some at import)."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "home" / "token"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    yield
    huggingface_hub.close_session()


@pytest.fixture
def server(monkeypatch, tmp_path):
    with Imitation() as imitation:
        imitation.repositories["org/model"] = Repository(folder(tmp_path / "model"))
        monkeypatch.setenv("HF_ENDPOINT", imitation.url)
        yield imitation


def refusal(source="org/model", **keys) -> str:
    with pytest.raises(PlanError) as caught:
        read(source, **keys)
    return str(caught.value)


def unreachable(source="org/model") -> str:
    with pytest.raises(Unreachable) as caught:
        read(source)
    return str(caught.value)


def everything_in_cache(server: Imitation, repository: str = "org/model") -> None:
    huggingface_hub.snapshot_download(repository, endpoint=server.url, cache_dir=hub.cache())
    server.requests.clear()


def header_bytes(path) -> int:
    return 8 + int.from_bytes(path.read_bytes()[:8], "little")


def test_a_public_repository_tells_what_its_folder_tells(server) -> None:
    found = read("org/model")
    same = read(str(server.repositories["org/model"].folder))
    assert found.revision == COMMIT
    assert (found.config, found.tensors, found.tokenizer) == (same.config, same.tensors, same.tokenizer)
    assert found.chat_template_sha256 == same.chat_template_sha256
    assert found.source == "org/model"


def test_no_byte_of_the_weights_is_fetched(server) -> None:
    repository = server.repositories["org/model"]
    path = repository.folder / "model.safetensors"
    path.write_bytes(safetensors(header({"w": ("BF16", (512, 512))})))
    read("org/model")
    assert repository.sent["model.safetensors"] == header_bytes(path)


def test_shards_are_read_by_index_and_headers(server, tmp_path) -> None:
    repository = server.repositories["org/sharded"] = Repository(sharded(tmp_path / "sharded"))
    assert read("org/sharded").tensors.keys() == WEIGHTS.keys()
    for shard in repository.folder.glob("*.safetensors"):
        assert repository.sent[shard.name] == header_bytes(shard)


def test_a_redirect_to_the_content_network_is_followed_without_the_token(server, monkeypatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with Imitation(is_content=True) as content:
        content.repositories = server.repositories
        server.content = content
        assert read("org/model").tensors.keys() == WEIGHTS.keys()
        assert {authorization for _, _, authorization in content.requests} == {None}
        assert content.requests, "the headers came from there"
    assert {authorization for _, _, authorization in server.requests} == {f"Bearer {TOKEN}"}


def test_a_server_that_ignores_ranges_is_left_early(server) -> None:
    server.faults["model.safetensors"] = "no ranges"
    assert read("org/model").tensors.keys() == WEIGHTS.keys()


def test_small_files_come_from_the_cache_the_second_time(server) -> None:
    read("org/model")
    sent = dict(server.repositories["org/model"].sent)
    read("org/model")
    assert server.repositories["org/model"].sent["tokenizer.json"] == sent["tokenizer.json"]


def test_a_whole_snapshot_in_the_cache_is_read_without_a_request(server) -> None:
    everything_in_cache(server)
    found = read("org/model")
    assert server.requests == []
    assert (found.revision, found.tensors.keys(), found.gaps) == (COMMIT, WEIGHTS.keys(), ())
    assert read("org/model", revision=COMMIT).revision == COMMIT
    assert server.requests == []


@pytest.mark.parametrize("setting", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_reads_the_cache_and_asks_nobody(server, monkeypatch, setting) -> None:
    monkeypatch.setenv(setting, "1")
    assert "HF_HUB_OFFLINE forbids" in unreachable()
    monkeypatch.delenv(setting)
    everything_in_cache(server)
    monkeypatch.setenv(setting, "1")
    assert read("org/model").tensors.keys() == WEIGHTS.keys()
    assert server.requests == []


def test_offline_decided_before_the_import_counts_too(server, monkeypatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE forbids" in unreachable()
    assert server.requests == []


def test_a_cache_in_part_tells_its_texts_and_says_that_tensors_are_unknown(server, monkeypatch) -> None:
    read("org/model")  # leaves the small files in the cache, and no weights
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = read("org/model")
    assert found.tensors is None
    assert found.tokenizer.ids["ab"] == 4
    assert "tensors are unknown" in found.gaps[-1]


def test_a_missing_repository_is_the_plans_mistake(server) -> None:
    message = refusal("org/nothing", place="candidates[0].draft")
    assert message.startswith(f"candidates[0].draft: org/nothing is not on {server.url}, or is private")


def test_a_gated_repository_says_where_to_ask_for_access(server) -> None:
    server.repositories["org/model"].gated = True
    message = refusal()
    assert "org/model is gated" in message
    assert f"{server.url}/org/model" in message


def test_a_missing_revision_is_named(server) -> None:
    assert "org/model has no revision 'v9'" in refusal(revision="v9")


def test_a_name_that_the_hub_cannot_have_is_refused_unasked(server) -> None:
    assert "no hub id" in refusal("org/mod--el")
    assert server.requests == []


def test_a_repository_without_a_model_is_the_plans_mistake(server, tmp_path) -> None:
    server.repositories["org/notes"] = Repository(tmp_path / "notes")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "README.md").write_text("x")
    assert "org/notes has no config.json" in refusal("org/notes")


@pytest.mark.parametrize(
    ("status", "said"), [(401, "does not accept the token"), (403, "refuses org/model (status 403)")]
)
def test_a_refusal_is_the_plans_mistake(server, status, said) -> None:
    server.faults["model.safetensors"] = status
    assert said in refusal()


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_hub_in_trouble_is_unreachable(server, status) -> None:
    server.faults["info"] = status
    assert f"does not answer for org/model (status {status})" in unreachable()


def test_a_hub_that_keeps_failing_on_a_small_file_is_unreachable(server, monkeypatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)  # huggingface_hub tries again a few times
    server.faults["config.json"] = 503
    assert "does not answer for org/model (status 503)" in unreachable()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (429, "(status 429)"),
        (500, "(status 500)"),
        ("dies", "cannot be asked for org/model"),
        ("no size", "without the file's size"),
    ],
)
def test_trouble_within_the_headers_leaves_the_texts_and_says_that_tensors_are_unknown(server, fault, said) -> None:
    server.faults["model.safetensors"] = fault
    found = read("org/model")
    assert found.tensors is None
    assert found.tokenizer.ids["ab"] == 4
    assert found.gaps[-1].startswith("tensors are unknown: ")
    assert said in found.gaps[-1]


def test_a_closed_port_is_unreachable(monkeypatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")
    assert "cannot be asked for org/model" in unreachable()


def test_a_silent_hub_is_unreachable_in_time(server, monkeypatch) -> None:
    monkeypatch.setattr(hub, "TIMEOUT_S", 0.3)
    server.faults["info"] = threading.Event()
    try:
        assert "cannot be asked for org/model" in unreachable()
    finally:
        server.faults["info"].set()


@pytest.mark.parametrize(
    "answer", [b"<html>log in to the wireless network</html>", b"[]", b'{"id": "org/model"}', b"{"]
)
def test_an_answer_that_is_not_the_hubs_is_unreachable(server, answer) -> None:
    server.faults["info"] = answer
    assert server.url in unreachable()


@pytest.mark.parametrize("content", [b"", b"\1\2\3", safetensors(header(WEIGHTS))[:-3], safetensors(b"nope", 0)])
def test_a_broken_file_on_the_hub_is_the_checkpoints_mistake(server, content) -> None:
    (server.repositories["org/model"].folder / "model.safetensors").write_bytes(content)
    assert "org/model/model.safetensors" in refusal()


@pytest.mark.parametrize("fault", [401, 403, 404, 500, "gated", "missing"])
def test_the_token_shows_up_in_no_message_and_no_log(server, monkeypatch, caplog, fault) -> None:
    """The imitation quotes the token in its error texts, as a careless proxy would."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    caplog.set_level(logging.INFO)
    server.repositories["org/model"].gated = fault == "gated"
    if isinstance(fault, int):
        server.faults["model.safetensors"] = fault
    try:
        said = " ".join(read("org/nothing" if fault == "missing" else "org/model").gaps)
    except (PlanError, Unreachable) as error:
        said = "".join(traceback.format_exception_only(error))
    assert said
    assert any(authorization == f"Bearer {TOKEN}" for _, _, authorization in server.requests), "it was sent"
    assert TOKEN not in said
    assert TOKEN not in caplog.text


def test_a_gguf_on_the_hub_is_chosen_and_left_as_a_gap(server, tmp_path) -> None:
    (tmp_path / "gguf").mkdir()
    server.repositories["org/gguf"] = Repository(tmp_path / "gguf")
    gguf_file(tmp_path / "gguf" / "m-Q8_0.gguf")
    found = read("org/gguf")
    assert (found.format, found.tensors, found.revision) == (Format.GGUF, None, COMMIT)
    assert "m-Q8_0.gguf is not in the local cache" in found.gaps[0]
    gguf_file(tmp_path / "gguf" / "m-Q4_K_M.gguf")
    assert 'Name one as "org/gguf:FILE.gguf"' in refusal("org/gguf")
    assert "m-Q4_K_M.gguf" in read("org/gguf:q4_k_m").gaps[0]
    assert "m-Q8_0.gguf" in read("org/gguf:m-Q8_0.gguf").gaps[0]
    assert "that 'x.gguf' can mean (m-Q4_K_M.gguf, m-Q8_0.gguf)" in refusal("org/gguf:x.gguf")


def test_a_gguf_in_the_cache_is_read(server, tmp_path) -> None:
    (tmp_path / "gguf").mkdir()
    server.repositories["org/gguf"] = Repository(tmp_path / "gguf")
    gguf_file(tmp_path / "gguf" / "m-Q8_0.gguf")
    everything_in_cache(server, "org/gguf")
    found = read("org/gguf:m-Q8_0.gguf")
    assert (found.revision, found.model_type, server.requests) == (COMMIT, "llama", [])


def test_index_and_shards_cached_in_part_are_not_taken_for_a_whole(server, tmp_path, monkeypatch) -> None:
    server.repositories["org/sharded"] = Repository(sharded(tmp_path / "sharded"))
    everything_in_cache(server, "org/sharded")
    snapshot = hub.cached("org/sharded", None).folder
    (snapshot / "model-00002-of-00002.safetensors").unlink()
    assert read("org/sharded").tensors.keys() == WEIGHTS.keys(), "the missing header came from the hub"
    assert server.requests
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert read("org/sharded").tensors is None


def test_the_settings_are_read_when_asked(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "a"))
    assert hub.cache() == tmp_path / "a" / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "b"))
    assert hub.cache() == tmp_path / "b"
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror.example/")
    assert hub.endpoint() == "http://mirror.example"
    assert not hub.is_offline()
