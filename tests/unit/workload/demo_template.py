"""The chat template of the demo's target, where a demo has put it into the cache."""

from __future__ import annotations

import jinja2
import pytest

from specdyno.demo import checkpoints


def small_template() -> jinja2.Template:
    found = sorted(checkpoints.cache().glob("SmolLM2-135M-Instruct-*/chat_template.jinja"))
    if not found:
        pytest.skip("the demo's target is not in the cache")
    return jinja2.Environment(autoescape=False).from_string(found[0].read_text(encoding="utf-8"))
