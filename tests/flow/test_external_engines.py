"""Engines that the user's own commands start: whatever happens, no arm is measured on top of another's engine."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from tests.flow.command_line import (
    CANDIDATE,
    COMMAND,
    PATIENCE_S,
    end_of,
    environment,
    plan,
    records,
    rows,
    specdyno,
    started,
    until,
    verdict,
    write_plan,
)
from tests.flow.external_engines import SERVE, WORDS, Daemon, external, in_foreground, script, study

from specdyno.engine.process import free_port
from specdyno.records.schema import BootStatus

pytestmark = pytest.mark.timeout(600)  # whole studies on a slow, busy machine

KEY = "sk-external-7c1e55d0"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "daemon").at_work() as running:
        yield running


def owed(folder: Path) -> list[Path]:
    return list((folder / "logs").glob("*.stop.json"))


# ---- started by commands ---------------------------------------------------------------------------------------------


def test_a_command_that_stays_is_measured_like_any_engine_and_its_key_is_kept_nowhere(tmp_path: Path) -> None:
    content = study(
        start=in_foreground(tmp_path),
        env={"FLAGS": "--fault log_secrets"},
        api_key_env="SPECDYNO_SIMULATED_API_KEY",
    )
    path, folder = write_plan(tmp_path / "plan.yaml", content), tmp_path / "study"
    ended = specdyno("run", path, "--out", folder, env={"SPECDYNO_SIMULATED_API_KEY": KEY})
    assert ended.code == 0, ended
    assert KEY not in ended.out + ended.err
    kept = b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
    assert KEY.encode() not in kept
    assert b"Bearer [API key]" in b"".join(file.read_bytes() for file in folder.glob("logs/*.log"))
    candidate = next(boot for boot in records(folder).boots if boot.arm == "eagle3-k3")
    assert candidate.command[1:4] == ("eagle3", "sim/draft", "3")
    assert (candidate.identity.speculation, candidate.identity.draft_tokens) == (True, 3)
    baseline = next(boot for boot in records(folder).boots if boot.arm == "baseline")
    assert baseline.command[1:4] == ("none", "", "0")
    assert baseline.identity.speculation is False
    assert owed(folder) == []


def test_a_command_that_returns_has_its_engine_stopped_by_the_stop_command(daemon: Daemon, tmp_path: Path) -> None:
    ready = script(
        tmp_path / "ready.sh",
        f'[ -e "{tmp_path}/asked-$1-$2" ] || {{ touch "{tmp_path}/asked-$1-$2"; exit 1; }}',
        f'grep -q "listening on" "{daemon.folder}/$2.log"',
    )
    content = study(start=daemon.start, stop=daemon.stop, ready=[str(ready), "{arm}", "{port}"])
    path, folder = write_plan(tmp_path / "plan.yaml", content), tmp_path / "study"
    ended = specdyno("run", path, "--out", folder)
    assert ended.code == 0, ended
    assert daemon.started == 8
    assert daemon.running == []
    assert owed(folder) == []
    assert len(list(tmp_path.glob("asked-*"))) == 8


@pytest.mark.parametrize(
    "launch",
    [("echo $$ >{pid}", 'exec "$@"'), ('setsid "$@" </dev/null &', "echo $! >{pid}")],
    ids=["stays", "returns"],
)
def test_a_stop_command_may_wait_until_the_process_is_gone(launch: tuple[str, str], tmp_path: Path) -> None:
    serve = script(tmp_path / "serve.sh", SERVE, *(line.format(pid=tmp_path / "pid") for line in launch))
    down = script(
        tmp_path / "down.sh",
        f'pid=$(cat "{tmp_path}/pid"); kill "$pid"',
        'for i in $(seq 100); do kill -0 "$pid" 2>/dev/null || exit 0; sleep 0.1; done',
        "exit 1",
    )
    content = {**study(start=[str(serve), *WORDS], stop=[str(down)]), "experiment": {"looks": [1]}}
    path, folder = write_plan(tmp_path / "plan.yaml", content), tmp_path / "study"
    ended = specdyno("run", path, "--out", folder)
    assert ended.code == 20, ended
    assert {boot.status for boot in records(folder).boots} == {BootStatus.COMPLETE}
    assert owed(folder) == []


def test_programs_beside_the_plan_are_found_from_anywhere(tmp_path: Path) -> None:
    words = in_foreground(tmp_path)
    path = write_plan(tmp_path / "plan.yaml", study(start=["./serve.sh", *words[1:]]))
    assert specdyno("check", path, cwd=Path("/")).code == 0


def test_an_engine_that_drafts_otherwise_than_asked_is_found_out(tmp_path: Path) -> None:
    words = in_foreground(tmp_path)
    content = plan(
        engine=external(start=[words[0], words[1], words[2], "2", words[4]]),
        candidates=[CANDIDATE],
    )
    path, folder = write_plan(tmp_path / "plan.yaml", content), tmp_path / "study"
    assert specdyno("run", path, "--out", folder).code in (10, 20), "never promoted"
    findings = verdict(folder)["objectives"][0]["candidates"][0]["findings"]
    assert "draft_tokens_not_as_asked" in {one["code"] for one in findings if one["severity"] == "forbids"}


def test_where_the_answers_tell_nothing_of_the_draft_length_that_is_a_doubt(tmp_path: Path) -> None:
    path = write_plan(tmp_path / "plan.yaml", study(start=in_foreground(tmp_path), speaks="openai"))
    folder = tmp_path / "study"
    specdyno("run", path, "--out", folder)
    boot = next(boot for boot in records(folder).boots if boot.arm == "eagle3-k3")
    assert (boot.identity.engine, boot.identity.speculation, boot.identity.method) == ("openai", None, None)


# ---- that will not start, or not stop --------------------------------------------------------------------------------


def test_an_engine_that_is_not_stopped_ends_the_study_before_the_next_arm(daemon: Daemon, tmp_path: Path) -> None:
    content = study(start=daemon.start, stop=["true"], stop_timeout="1s")
    path, folder = write_plan(tmp_path / "plan.yaml", content), tmp_path / "study"
    ended = specdyno("run", path, "--out", folder)
    assert ended.code == 3
    assert "was not stopped" in ended.text
    assert "still answers after the stop command" in ended.text
    assert "engine.external.stop" in ended.text
    (boot,) = records(folder).boots
    assert boot.status is BootStatus.INTERRUPTED
    assert daemon.started == 1
    assert len(owed(folder)) == 1
    again = specdyno("run", path, "--out", folder, "--resume")
    assert again.code == 3
    assert "an earlier run may have left" in again.text
    assert daemon.started == 1, "nothing is started beside an engine that is still there"
    daemon.end_all()
    assert specdyno("run", path, "--out", folder, "--resume").code == 3
    assert daemon.started == 2, "once it is gone the study goes on"


def test_a_stop_command_that_fails_is_told_although_nothing_answers_any_more(daemon: Daemon, tmp_path: Path) -> None:
    down = daemon.stop
    failing = script(tmp_path / "fail.sh", f'"{down[0]}" "$1"', "exit 7")
    path = write_plan(tmp_path / "plan.yaml", study(start=daemon.start, stop=[str(failing), "{port}"]))
    ended = specdyno("run", path, "--out", tmp_path / "study")
    assert ended.code == 3
    assert "the stop command ended with 7" in ended.text


def test_a_start_that_fails_shows_its_last_words_and_the_stop_is_run_all_the_same(tmp_path: Path) -> None:
    failing = script(tmp_path / "fail.sh", "echo the image does not exist", "exit 5")
    stop = script(tmp_path / "stop.sh", f'echo "$1" >> "{tmp_path}/stopped"')
    content = study(start=[str(failing), "{method}"], stop=[str(stop), "{arm}"])
    path = write_plan(tmp_path / "plan.yaml", content)
    ended = specdyno("run", path, "--out", tmp_path / "study")
    assert ended.code == 3
    assert "the start command ended with code 5 before it was ready" in ended.text
    assert "the image does not exist" in ended.text
    assert (tmp_path / "stopped").read_text().split().count("baseline") == 2, "once for each try"


def test_an_address_at_which_something_answers_already_is_refused(daemon: Daemon, tmp_path: Path) -> None:
    (daemon.folder / "0.start").write_text("none\n\n0\n0\n")
    log = daemon.folder / "0.log"
    found = until(lambda: log.exists() and re.search(r"listening on http://127.0.0.1:(\d+)", log.read_text()))
    content = study(start=daemon.start, stop=daemon.stop, base_url=f"http://127.0.0.1:{found[1]}")
    path = write_plan(tmp_path / "plan.yaml", content)
    ended = specdyno("run", path, "--out", tmp_path / "study")
    assert ended.code == 3
    assert "something already answers" in ended.text
    assert daemon.started == 1


# ---- interrupted -----------------------------------------------------------------------------------------------------


def test_an_interrupted_study_stops_its_engine(daemon: Daemon, tmp_path: Path) -> None:
    path = write_plan(tmp_path / "plan.yaml", study(start=daemon.start, stop=daemon.stop))
    folder = tmp_path / "study"
    with started("run", path, "--out", folder) as running:
        until(lambda: rows(folder, "SELECT 1 FROM request"), meanwhile=running)
        running.send_signal(signal.SIGINT)
        assert end_of(running).code == 130
    assert daemon.started >= 1
    assert daemon.running == []
    assert owed(folder) == []


def test_a_killed_study_leaves_no_engine(daemon: Daemon, tmp_path: Path) -> None:
    path = write_plan(tmp_path / "plan.yaml", study(start=daemon.start, stop=daemon.stop))
    folder = tmp_path / "study"
    with started("run", path, "--out", folder) as running:
        until(lambda: rows(folder, "SELECT 1 FROM request"), meanwhile=running)
        running.kill()
        running.wait()
        until(lambda: daemon.running == [])


def test_an_engine_that_a_crash_left_running_is_stopped_when_the_study_is_resumed(
    daemon: Daemon, tmp_path: Path
) -> None:
    path = write_plan(tmp_path / "plan.yaml", study(start=daemon.start, stop=daemon.stop))
    folder = tmp_path / "study"
    with started("run", path, "--out", folder) as running:
        until(lambda: rows(folder, "SELECT 1 FROM request"), meanwhile=running)
        family = psutil.Process(running.pid).children(recursive=True)
        os.killpg(running.pid, signal.SIGSTOP)
        for process in [*family, psutil.Process(running.pid)]:  # as a crash of the host would: the keeper too
            with suppress(psutil.Error):
                process.kill()
        running.wait()
    if not daemon.running:
        pytest.fail("nothing was left to be stopped")
    assert len(owed(folder)) == 1
    ended = specdyno("run", path, "--out", folder, "--resume")
    assert ended.code == 0, ended
    assert "an earlier run may have left" in ended.text
    assert daemon.running == []


# ---- a person --------------------------------------------------------------------------------------------------------


def test_without_a_terminal_a_person_cannot_be_asked(tmp_path: Path) -> None:
    path = write_plan(tmp_path / "plan.yaml", study(human=True, base_url="http://127.0.0.1:9"))
    with started("run", path, "--out", tmp_path / "study") as running:
        ended = end_of(running)
    assert ended.code == 2
    assert "engine.external.human" in ended.text
    assert not (tmp_path / "study").exists()
    assert specdyno("check", path).code == 0


def test_a_person_starts_and_stops_each_arm_when_asked(daemon: Daemon, tmp_path: Path) -> None:
    content = study(human=True, base_url="http://127.0.0.1:{port}", args={"port": free_port()}, stop_timeout="1s")
    port = content["engine"]["args"]["port"]
    path = write_plan(tmp_path / "plan.yaml", {**content, "experiment": {"looks": [1]}})
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [COMMAND, "run", str(path), "--out", str(tmp_path / "study")],
        stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment(), start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    try:
        assert running.stdout is not None
        said = []
        for line in running.stdout:
            said.append(line.decode())
            if "Start sim/model without speculation" in said[-1]:
                (daemon.folder / f"{port}.start").write_text(f"none\n\n0\n{port}\n")
            elif "Start sim/model with eagle3, draft sim/draft, 3 draft tokens" in said[-1]:
                (daemon.folder / f"{port}.start").write_text(f"eagle3\nsim/draft\n3\n{port}\n")
            elif "Stop the server" in said[-1]:
                os.write(ours, b"\n")  # too early: asked again
                continue
            elif "Something still answers" in said[-1]:
                (daemon.folder / f"{port}.stop").touch()
                until(lambda: not daemon.running)
            if "press Enter" in said[-1]:
                os.write(ours, b"\n")
        assert running.wait(PATIENCE_S) == 20, said
    finally:
        running.kill()
        running.communicate()
        os.close(ours)
    assert "".join(said).count("Start sim/model") == 2
    assert "".join(said).count("Something still answers") == 2
    assert [boot.status for boot in records(tmp_path / "study").boots] == [BootStatus.COMPLETE] * 2


# ---- mistakes in the plan --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"start": ["serve", "{methd}"]}, ("engine.external.start[1]", "{methd}", "{method}")),
        ({"start": ["true", "{method}"], "base_url": "http://h:{porte}"}, ("engine.external.base_url", "{porte}")),
        ({"start": ["true", "{method}"], "base_url": "localhost:80"}, ("engine.external.base_url", "no address")),
        ({"start": ["true", "{method}"], "base_url": "http://me:pw@h:1"}, ("engine.external.base_url", "password")),
        ({"start": ["true", "{port}"]}, ("exactly as it starts the baseline",)),
        ({"start": ["no-such-program-anywhere", "{method}"]}, ("engine.external.start[0]", "no program")),
        ({"start": ["true", "{method}"], "stop": ["no-such-program"]}, ("engine.external.stop[0]", "no program")),
        ({}, ("engine.external.start is missing",)),
        ({"start": ["true", "{method}"], "human": True}, ("both human and commands",)),
        ({"start": ["true", "{method}"], "args": {"max-num-seqs": 4}}, ("engine.args.max-num-seqs has no effect",)),
        ({"start": ["curl", "-H", "Authorization: Bearer sk-1"]}, ("engine.external.start[2]", "secret")),
        ({"start": ["docker", "-e", "HF_TOKEN=hf_abc", "{method}"]}, ("engine.external.start[2]", "secret")),
        ({"start": ["true", "--api-key", "x", "{method}"]}, ("engine.external.start[1]", "secret")),
        (
            {"start": ["true", f"--x={KEY}", "{method}"], "api_key_env": "FLOW_KEY"},
            ("engine.external.start[1]", "the value of FLOW_KEY"),
        ),
    ],
)
def test_a_mistake_in_the_commands_is_told_with_its_place(tmp_path: Path, keys: dict, told: tuple[str, ...]) -> None:
    path = write_plan(tmp_path / "plan.yaml", study(**keys))
    ended = specdyno("run", path, "--out", tmp_path / "study", env={"FLOW_KEY": KEY})
    assert ended.code == 2, ended
    assert all(part in ended.text for part in told), ended.text
    assert KEY not in ended.text
    assert not (tmp_path / "study").exists()


def test_options_that_no_command_uses_are_a_mistake(tmp_path: Path) -> None:
    candidates = [{**CANDIDATE, "options": {"x": 1}}]
    content = {**study(start=in_foreground(tmp_path)), "candidates": candidates}
    ended = specdyno("check", write_plan(tmp_path / "plan.yaml", content))
    assert ended.code == 2
    assert "{options}" in ended.text


@pytest.mark.parametrize("speaks", ["sglang", "trtllm"])
def test_an_engine_that_was_never_run_here_is_named_before_the_first_boot(tmp_path: Path, speaks: str) -> None:
    ended = specdyno("check", write_plan(tmp_path / "plan.yaml", study(start=in_foreground(tmp_path), speaks=speaks)))
    assert ended.code == 0, ended
    assert "never run against it" in ended.text
