"""The plan's `target` and `engine`: what is served, by which product, and how it is started."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from specdyno.plan.part import Part
from specdyno.plan.spelling import Duration, EnvironmentText, Flag, VariableName


class Target(Part):
    model: str = Field(
        min_length=1, description="Hub id, local folder or GGUF file of the target model.", examples=["org/model"]
    )
    revision: str | None = Field(default=None, description="Hub revision; null means the engine's default.")


class EngineKind(StrEnum):
    VLLM = "vllm"
    LLAMACPP = "llamacpp"
    SIMULATED = "simulated"


class Engine(Part):
    kind: EngineKind = Field(description="Which adapter: vllm, llamacpp or simulated.", examples=["vllm"])
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
