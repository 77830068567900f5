"""A small study in a temporary folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.records.small_study import HEADER, begin_boot, begin_window

from specdyno.records.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "study.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store.create(path, HEADER) as store:
        yield store


@pytest.fixture
def window_id(store: Store) -> int:
    return begin_window(store, begin_boot(store))


@pytest.fixture
def read_only_folder() -> Iterator[Path]:
    """An existing study in a folder that this process may only read; root gives up its rights for the while."""
    folder = Path(tempfile.mkdtemp())
    with Store.create(folder / "study.sqlite", HEADER):
        pass
    (folder / "study.sqlite").chmod(0o444)
    folder.chmod(0o555)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)
        shutil.rmtree(folder)
