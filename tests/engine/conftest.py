"""Where live engines log, and what they may not do."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def _logs(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["SPECDYNO_TEST_LOGS"] = str(tmp_path_factory.mktemp("engine-logs"))
    os.environ["HF_HUB_OFFLINE"] = "1"
