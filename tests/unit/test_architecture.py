"""The house: who may import whom, read from the syntax tree, so that no import can hide inside a function."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "specdyno"
FORBIDDEN_NAMES = {"utils", "util", "common", "helper", "helpers", "manager", "misc", "core"}
HEAVY = {"torch", "transformers", "vllm", "plotly", "pandas"}

# stage -> stages that it may import, itself aside. `errors` and the package's version are everyone's.
MAY_IMPORT = {
    "__main__": {"cli"},
    "cli": {
        "display", "screens", "flow", "report", "load", "records", "workload", "plan", "verdict",
        "demo", "published",
    },
    "display": {"flow", "report", "records", "plan"},
    "screens": {"published", "flow", "engine", "preflight", "report", "statistics", "records", "workload", "plan"},
    "flow": {
        "report", "verdict", "quality", "statistics", "load", "engine", "preflight", "records", "workload", "plan",
    },
    "report": {"published", "verdict", "quality", "statistics", "records", "workload", "plan"},
    "verdict": {"quality", "statistics", "records", "workload", "plan"},
    "quality": {"records", "workload", "plan"},
    "statistics": {"records", "workload", "plan"},
    "load": {"engine", "preflight", "records", "workload", "plan"},
    "engine": {"preflight", "records", "workload", "plan"},
    "preflight": {"records", "workload", "plan"},
    "records": {"workload", "plan"},
    "workload": {"plan"},
    "plan": set(),
    "errors": set(),
    "published": {"plan"},
    "demo": {"preflight", "workload", "plan"},
}  # fmt: skip
LEFT, RIGHT = {"load", "engine", "preflight"}, {"report", "verdict", "quality", "statistics"}
FREE = {"errors", "__init__", "__version__"}


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def stage_of(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    """Absolute names of everything that a module imports, wherever the import stands."""
    package = ["specdyno", *path.relative_to(SOURCE).parent.parts]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("import_module", "__import__"):
            yield from (part.value for part in node.args[:1] if isinstance(part, ast.Constant))


def stages_imported(path: Path) -> set[str]:
    own = {name.split(".")[1] for name in imported(path) if name.startswith("specdyno.")}
    return own - FREE - {stage_of(path)}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_stage_imports_only_what_stands_below_it(path: Path) -> None:
    stage = stage_of(path)
    if stage == "__init__":
        assert stages_imported(path) == set()
    else:
        assert stage in MAY_IMPORT, f"{stage} has no place in the order of the stages"
        assert stages_imported(path) <= MAY_IMPORT[stage]


def test_the_order_has_no_circle_and_the_two_sides_of_records_never_meet() -> None:
    below: dict[str, set[str]] = {}
    while len(below) < len(MAY_IMPORT):
        ready = {
            stage: allowed for stage, allowed in MAY_IMPORT.items() if stage not in below and allowed <= below.keys()
        }
        assert ready, "a circle"
        below |= ready
    assert not any(MAY_IMPORT[left] & RIGHT for left in LEFT)
    assert not any(MAY_IMPORT[right] & LEFT for right in RIGHT)
    assert not (MAY_IMPORT["records"] & (LEFT | RIGHT))


def test_only_the_command_line_knows_the_demo() -> None:
    importers = {stage_of(path) for path in modules() if "demo" in stages_imported(path)}
    assert importers <= {"cli"}


def test_every_stage_of_the_order_is_in_the_tree() -> None:
    there = {stage_of(path) for path in modules()} - {"__init__"}
    assert set(MAY_IMPORT) - {"quality"} <= there <= set(MAY_IMPORT), "quality has its place and may be yet to come"


def test_no_base_module_imports_an_engine_or_a_heavy_library() -> None:
    found = {
        (str(path.relative_to(SOURCE)), name.split(".")[0])
        for path in modules()
        if stage_of(path) != "demo"
        for name in imported(path)
    }
    assert {pair for pair in found if pair[1] in HEAVY} == set()
    assert any(name == "aiohttp" for _, name in found), "imports are seen at all"


def test_the_base_install_asks_for_no_heavy_library() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {dependency.split(">")[0].split("=")[0].split("[")[0].lower() for dependency in project["dependencies"]}
    assert names & HEAVY == set()
    assert "aiohttp" in names


def test_no_module_is_named_for_what_does_not_belong_elsewhere() -> None:
    names = {part for path in modules() for part in path.relative_to(SOURCE).with_suffix("").parts}
    assert names & FORBIDDEN_NAMES == set()
    assert not [name for name in names if name.endswith(("_utils", "_helper", "_helpers", "_manager", "_common"))]


def test_an_import_inside_a_function_or_relative_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.unit.test_architecture.SOURCE", tmp_path)
    module = tmp_path / "plan" / "hidden.py"
    module.parent.mkdir()
    module.write_text(
        "def late():\n    from specdyno import engine\n    from ..load.boot import Boot\n    from . import nodes\n"
    )
    assert stages_imported(module) == {"engine", "load"}
