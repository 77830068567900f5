"""An engine that the user's own commands start: a container, a remote shell, a cluster, or a person.

Owns what fills the placeholders of `engine.external`, and whose answers are read. Refuses commands that no program
answers to, that would start every arm alike, or that drop a candidate's options.
"""

from __future__ import annotations

import json
import shutil
import sys

from specdyno.engine.base import Adapter, Answers, Launch, Outside
from specdyno.engine.llamacpp import LlamaCppAdapter
from specdyno.engine.refusal import Refusal
from specdyno.engine.sglang import SglangAdapter
from specdyno.engine.simulated.adapter import SimulatedAdapter
from specdyno.engine.trtllm import TrtllmAdapter
from specdyno.engine.vllm import VllmAdapter
from specdyno.errors import PlanError, Problem
from specdyno.plan.external import Speaks, filled, placeholders
from specdyno.plan.schema import BASELINE, Arm, Engine, Role, Target
from specdyno.records.schema import Identity

_BASELINE = Arm(name=BASELINE, role=Role.BASELINE)


class OpenAiAdapter(Adapter):
    """Any server with OpenAI's routes: names its model, and nothing about speculation."""

    name = "openai"
    ready_path = "/v1/models"

    def flags(self, arm: Arm, port: int, *, boot_seed: int) -> list[str]:  # noqa: ARG002 (nothing is started)
        return []

    def identity(self, answers: Answers) -> Identity:
        return Identity(engine="openai", model=answers.served_model(), source="/v1/models")


_SPOKEN: dict[Speaks, type[Adapter]] = {
    Speaks.OPENAI: OpenAiAdapter,
    Speaks.VLLM: VllmAdapter,
    Speaks.SGLANG: SglangAdapter,
    Speaks.LLAMACPP: LlamaCppAdapter,
    Speaks.TRTLLM: TrtllmAdapter,
    Speaks.SIMULATED: SimulatedAdapter,
}


class ExternalAdapter(Adapter):
    """Commands of the plan, and the answers of the product that they start."""

    owned_flags = frozenset()
    default_command = ()

    def __init__(self, engine: Engine, target: Target) -> None:
        super().__init__(engine, target)
        spoken = _SPOKEN[engine.external.speaks]
        self.spoken = spoken(engine, target)
        self.name, self.read_from = spoken.name, spoken.read_from
        self.metrics_path, self.ready_path, self.questions = spoken.metrics_path, spoken.ready_path, spoken.questions
        self.request_fields = self.spoken.request_fields  # type: ignore[method-assign]

    def command(self) -> list[str]:
        return []  # `flags` is the whole command

    def flags(self, arm: Arm, port: int, *, boot_seed: int) -> list[str]:  # noqa: ARG002 (what starts it draws no seed)
        outside = self.engine.external
        if arm.options and not any("options" in placeholders(word) for word in outside.start):
            raise PlanError(
                f"candidates[].options of {arm.name}: engine.external.start does not use them. "
                "Put {options} into it (they are filled in as JSON), or remove them"
            )
        words = self._filled(outside.start, arm, port)
        if arm.role is Role.CANDIDATE and not outside.human and words == self._filled(outside.start, _BASELINE, port):
            raise PlanError(
                f"engine.external.start starts {arm.name} exactly as it starts the baseline. "
                "Use {method} and {draft_tokens} (and {draft}) in it"
            )
        return words

    def launch(self, arm: Arm, port: int, *, boot_seed: int = 0) -> Launch:
        outside = self.engine.external
        return Launch(
            tuple(self.flags(arm, port, boot_seed=boot_seed)),
            port,
            dict(self.engine.env),
            filled(outside.base_url, {"port": str(port)}),
            outside=Outside(
                stop=tuple(self._filled(outside.stop, arm, port)),
                ready=tuple(self._filled(outside.ready, arm, port)),
                stop_timeout_s=outside.stop_timeout,
                human=outside.human,
                told=_told(arm, self.target.model),
            ),
        )

    def deployment(self, arm: Arm) -> tuple[str, ...]:
        """The whole start command of an arm; the port is left open."""
        values = {name: text for name, text in self._values(arm, 0).items() if name != "port"}
        return tuple(filled(word, values) for word in self.engine.external.start)

    def identity(self, answers: Answers) -> Identity:
        return self.spoken.identity(answers)

    def refusal(self, identity: Identity, arm: Arm, log: str) -> Refusal | None:
        return self.spoken.refusal(identity, arm, log)

    def advice(self, log: str) -> str:
        return self.spoken.advice(log)

    def refuse_owned_flags(self) -> None:
        super().refuse_owned_flags()
        problems = []
        for name in ("start", "stop", "ready"):
            words = self._filled(getattr(self.engine.external, name), _BASELINE, 0)
            if words and shutil.which(words[0]) is None:
                seen = f'there is no program "{words[0]}" here that could be run'
                remedy = "Write an executable file or a program on PATH; for a shell's own words: [sh, -c, '...']"
                problems.append(Problem(f"engine.external.{name}[0]", seen, remedy))
        if problems:
            raise PlanError(problems)

    def _filled(self, words: tuple[str, ...], arm: Arm, port: int) -> list[str]:
        values = self._values(arm, port)
        return [filled(word, values) for word in words]

    def _values(self, arm: Arm, port: int) -> dict[str, str]:
        return {
            "arm": arm.name,
            "method": str(arm.method or "none"),
            "draft": arm.draft or "",
            "draft_tokens": str(arm.draft_tokens or 0),
            "options": json.dumps(arm.options),
            "model": self.target.model,
            "port": str(port),
            "python": sys.executable,
        }


def _told(arm: Arm, model: str) -> str:
    """What a person is asked to start."""
    if arm.method is None:
        return f"{model} without speculation"
    draft = f", draft {arm.draft}" if arm.draft else ""
    options = f", options {json.dumps(arm.options)}" if arm.options else ""
    return f"{model} with {arm.method}{draft}, {arm.draft_tokens} draft tokens{options}"
