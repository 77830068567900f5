"""Lets these tests use the generator of studies with a known truth."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "simulation"))

from generator import make_study

__all__ = ["make_study"]
