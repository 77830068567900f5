"""One live specdyno per study; a dead one blocks nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from specdyno.errors import RecordError
from specdyno.records.lock import lock_study

HOLD = """
import pathlib, sys, time
from specdyno.records.lock import lock_study
with lock_study(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(100)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_lock_of_another_process_is_respected_and_names_its_pid(holder, tmp_path):
    with pytest.raises(RecordError, match=rf"pid {holder.pid}\)"), lock_study(tmp_path):
        pass


def test_lock_ends_with_its_holder_even_by_sigkill(holder, tmp_path):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with lock_study(tmp_path):
        assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"


def test_lock_can_be_taken_again_after_it_was_left(tmp_path):
    with lock_study(tmp_path):
        pass
    with lock_study(tmp_path), pytest.raises(RecordError, match=f"pid {os.getpid()}"), lock_study(tmp_path):
        pass


def test_engine_that_outlives_us_does_not_keep_the_lock(tmp_path):
    engine = [sys.executable, "-c", "print('up', flush=True); input()"]
    with lock_study(tmp_path):
        child = subprocess.Popen(engine, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False)
    with child:
        assert child.stdout.readline() == b"up\n"
        with lock_study(tmp_path):
            assert child.poll() is None
        child.communicate(b"\n")


def test_missing_folder_is_named(tmp_path):
    with pytest.raises(RecordError, match="Check that the folder exists"), lock_study(tmp_path / "nowhere"):
        pass


def test_read_only_folder_is_named(read_only_folder):
    with pytest.raises(RecordError, match="cannot be opened"), lock_study(read_only_folder):
        pass
