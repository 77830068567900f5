"""Engines behind TLS: trusted through a certificate authority of one's own, refused with the reason otherwise."""

from __future__ import annotations

import datetime as dt
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trustme
from tests.flow.command_line import records, specdyno, until, write_plan
from tests.flow.external_engines import Daemon, in_foreground, study
from tests.flow.tls_front import Front

from specdyno.engine.process import free_port, port_is_free

pytestmark = pytest.mark.timeout(600)  # whole studies on a slow, busy machine

AUTHORITY = trustme.CA()


def served_by(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


def self_signed(folder: Path) -> ssl.SSLContext:
    key, certificate = folder / "self.key", folder / "self.pem"
    asked = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *asked]
    subprocess.run(made, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    AUTHORITY.cert_pem.write_to_path(path)
    return path


@pytest.fixture
def served(tmp_path: Path) -> Iterator[int]:
    """A simulated server that is already running."""
    port = free_port()
    with Daemon(tmp_path / "daemon").at_work() as daemon:
        (daemon.folder / f"{port}.start").write_text(f"eagle3\nsim/draft\n3\n{port}\n")
        until(lambda: not port_is_free(port))
        yield port


@pytest.fixture
def front() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def measured(port: int, *words: object, host: str = "localhost"):
    return specdyno("measure", "--base-url", f"https://{host}:{port}", "--num-prompts", "4", *words)


def test_a_server_whose_authority_is_named_is_measured(served: int, authority: Path, front: ExitStack) -> None:
    port = front.enter_context(Front(served_by(AUTHORITY.issue_cert("localhost")), served).at_work()).port
    ended = measured(port, "--ca-file", authority)
    assert ended.code == 0, ended
    assert "eagle3" in ended.text


def test_an_unknown_authority_is_refused_with_what_to_do(served: int, front: ExitStack) -> None:
    port = front.enter_context(Front(served_by(AUTHORITY.issue_cert("localhost")), served).at_work()).port
    ended = measured(port)
    assert ended.code == 3
    assert "an authority that is not trusted here" in ended.text
    assert "--ca-file" in ended.text


def test_a_certificate_signed_by_itself_is_refused_with_what_to_do(
    served: int, tmp_path: Path, front: ExitStack
) -> None:
    port = front.enter_context(Front(self_signed(tmp_path), served).at_work()).port
    ended = measured(port)
    assert ended.code == 3
    assert "signed by itself" in ended.text
    assert measured(port, "--ca-file", tmp_path / "self.pem").code == 0


def test_an_expired_certificate_is_refused_also_where_its_authority_is_trusted(
    served: int, authority: Path, front: ExitStack
) -> None:
    past = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    expired = AUTHORITY.issue_cert("localhost", not_after=past)
    port = front.enter_context(Front(served_by(expired), served).at_work()).port
    ended = measured(port, "--ca-file", authority)
    assert ended.code == 3
    assert "has expired" in ended.text


def test_a_certificate_for_another_host_is_refused(served: int, authority: Path, front: ExitStack) -> None:
    port = front.enter_context(Front(served_by(AUTHORITY.issue_cert("elsewhere.example")), served).at_work()).port
    ended = measured(port, "--ca-file", authority)
    assert ended.code == 3
    assert "made for another name" in ended.text


def test_a_server_without_tls_is_told_apart(served: int) -> None:
    ended = measured(served)
    assert ended.code == 3
    assert "http://" in ended.text


@pytest.mark.parametrize(("content", "told"), [(None, "cannot be read"), ("no certificate", "holds no certificate")])
def test_a_file_that_names_no_authority_is_the_users_mistake(tmp_path: Path, content: str | None, told: str) -> None:
    named = tmp_path / "ca.pem"
    if content is not None:
        named.write_text(content)
    ended = specdyno("measure", "--base-url", "https://localhost:1", "--ca-file", named)
    assert ended.code == 2
    assert told in ended.text
    path = write_plan(tmp_path / "plan.yaml", study(start=in_foreground(tmp_path), ca_file="ca.pem"))
    checked = specdyno("check", path, cwd=Path("/"))
    assert checked.code == 2
    assert told in checked.text
    assert "engine.ca_file" in checked.text


def test_a_study_behind_tls_trusts_the_authority_that_stands_beside_its_plan(
    tmp_path: Path, authority: Path, front: ExitStack
) -> None:
    behind = free_port()
    port = front.enter_context(Front(served_by(AUTHORITY.issue_cert("localhost")), behind).at_work()).port
    content = study(
        start=in_foreground(tmp_path),
        base_url=f"https://localhost:{port}",
        args={"port": behind},
        ca_file=authority.name,
    )
    path = write_plan(tmp_path / "plan.yaml", content)
    ended = specdyno("run", path, "--out", tmp_path / "study", cwd=Path("/"))
    assert ended.code == 0, ended
    assert all(boot.identity.engine == "simulated" for boot in records(tmp_path / "study").boots)


def test_a_study_ends_at_once_where_the_certificate_is_refused(tmp_path: Path, front: ExitStack) -> None:
    behind = free_port()
    port = front.enter_context(Front(served_by(AUTHORITY.issue_cert("localhost")), behind).at_work()).port
    content = study(start=in_foreground(tmp_path), base_url=f"https://localhost:{port}", args={"port": behind})
    ended = specdyno("run", write_plan(tmp_path / "plan.yaml", content), "--out", tmp_path / "study")
    assert ended.code == 3
    assert "an authority that is not trusted here" in ended.text
    assert "engine.ca_file" in ended.text
    assert len(records(tmp_path / "study").boots) == 1
