"""The table of keys and the documentation know every key of the schema."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from specdyno.plan import parse, reference
from specdyno.plan.schema import Plan

DOCS = Path(__file__).parents[3] / "docs" / "plan.md"


def test_example_in_docs_is_a_plan() -> None:
    example = re.search(r"```yaml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    assert parse.parse(example[1]).study == "agent-pool"


def test_every_key_has_a_meaning() -> None:
    assert [key.path for key in reference.keys().values() if not key.meaning] == []


def _model_fields(model: type[BaseModel]) -> int:
    total = 0
    for info in model.model_fields.values():
        inner = [info.annotation, *getattr(info.annotation, "__args__", ())]
        parts = [one for one in inner if isinstance(one, type) and issubclass(one, BaseModel)]
        total += 1 + sum(_model_fields(part) for part in parts)
    return total


def test_no_field_of_the_schema_is_missing() -> None:
    assert len(reference.keys()) == _model_fields(Plan)


@pytest.mark.parametrize("key", [key for key in reference.keys().values() if key.example], ids=lambda key: key.path)
def test_examples_are_yaml(key: reference.Key) -> None:
    assert yaml.safe_load(key.example) is not None


def test_defaults_are_written_as_in_the_file() -> None:
    defaults = {path: key.default for path, key in reference.keys().items()}
    assert defaults["engine.ready_timeout"] == "20m"
    assert defaults["guards.failed_requests"] == "0.5%"
    assert defaults["experiment.looks"] == "[4, 6, 8, 12]"
    assert defaults["budget.time"] == "null"
    assert defaults["target.model"] is None
