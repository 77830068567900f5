"""The plan's `target` and `engine`: what is served, by which product, and how it is started."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from specdyno.plan.external import External
from specdyno.plan.part import Part
from specdyno.plan.spelling import Duration, EnvironmentText, Flag, VariableName, refusal


class Target(Part):
    model: str = Field(
        min_length=1, description="Hub id, local folder or GGUF file of the target model.", examples=["org/model"]
    )
    revision: str | None = Field(default=None, description="Hub revision; null means the engine's default.")


class EngineKind(StrEnum):
    VLLM = "vllm"
    LLAMACPP = "llamacpp"
    SGLANG = "sglang"
    TRTLLM = "trtllm"
    EXTERNAL = "external"
    SIMULATED = "simulated"


NOT_RUN_HERE: Mapping[str, str] = {
    EngineKind.SGLANG: "SGLang 0.5.23",
    EngineKind.TRTLLM: "TensorRT-LLM's main branch",
}
"""Engines whose adapters follow documentation and source only: what was read."""


class Engine(Part):
    kind: EngineKind = Field(
        description="Which adapter: vllm, llamacpp, sglang, trtllm, external or simulated.", examples=["vllm"]
    )
    command: tuple[str, ...] = Field(
        default=(),
        description='How the engine is started, as a list; "{python}" is this interpreter. Empty: the usual one.',
        examples=['["{python}", -m, vllm.entrypoints.openai.api_server]'],
    )
    args: dict[str, Flag] = Field(
        default_factory=dict,
        description="Flags for every arm, without the leading dashes. true or null: a bare flag.",
        examples=["{max-num-seqs: 32}"],
    )
    env: dict[str, EnvironmentText] = Field(
        default_factory=dict,
        description="Environment variables added for the engine.",
        examples=['{VLLM_NO_USAGE_STATS: "1"}'],
    )
    ready_timeout: Duration = Field(
        default=1200.0, description="Longest wait from start to the first healthy answer.", examples=["20m"]
    )
    request_timeout: Duration = Field(default=300.0, description="Longest time for one request.", examples=["5m"])
    api_key_env: VariableName | None = Field(
        default=None,
        description="Name of the environment variable that holds the API key.",
        examples=["ENGINE_API_KEY"],
    )
    ca_file: str | None = Field(
        default=None,
        description="PEM file of the certificate authority to trust for https, besides those the system trusts.",
        examples=["./company-ca.pem"],
    )
    external: External = Field(
        default=External(),
        description="How an engine of kind external is started, found ready and stopped.",
        examples=["{start: [./serve.sh, '{method}', '{port}'], speaks: vllm}"],
    )

    @property
    def read_from(self) -> str | None:
        """What the adapter in use was written from, where it was never run against the engine; None where it was."""
        spoken = self.external.speaks if self.kind is EngineKind.EXTERNAL else self.kind
        return NOT_RUN_HERE.get(str(spoken))

    @model_validator(mode="after")
    def _external_is_whole(self) -> Self:
        if self.kind is not EngineKind.EXTERNAL:
            if self.external != External():
                raise refusal(f"engine.external has no effect where kind is {self.kind}", "Write kind: external")
            return self
        outside = self.external
        if outside.human and (outside.start or outside.stop):
            raise refusal("engine.external has both human and commands to start or stop", "Keep one of them")
        if not outside.human and not outside.start:
            raise refusal("engine.external.start is missing", "Write the command that starts an arm, or human: true")
        if self.command:
            remedy = "Write it under engine.external.start"
            raise refusal("engine.command has no effect where kind is external", remedy)
        if strange := sorted(set(self.args) - {"port"}):
            remedy = "Write it into engine.external.start"
            raise refusal(f"engine.args.{strange[0]} has no effect where kind is external", remedy)
        return self
