"""The compiler that Triton asks every backend for: it refuses, so that nothing runs by accident uninterpreted."""

from __future__ import annotations

from types import ModuleType
from typing import NoReturn

from triton.backends.compiler import BaseBackend, GPUTarget


class RefusingCompiler(BaseBackend):
    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        return target.backend == "cpu"

    def hash(self) -> str:
        return "interpreted"

    def parse_options(self, options: dict[str, object]) -> NoReturn:
        _refuse(options)

    def add_stages(self, stages: dict[str, object], options: object, language: object) -> NoReturn:
        _refuse(stages, options, language)

    def load_dialects(self, context: object) -> None:
        """No dialects: nothing is compiled."""

    def get_module_map(self) -> dict[str, ModuleType]:
        return {}


def _refuse(*_given: object) -> NoReturn:
    raise NotImplementedError("this backend compiles nothing: set TRITON_INTERPRET=1 to interpret the kernels")
