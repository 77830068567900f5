"""All that an estimate of one arm looks at: files, settings, and where the engine will run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specdyno.plan.schema import Arm, Method
from specdyno.preflight.checkpoints.schema import Checkpoint
from specdyno.preflight.memory.devices import Device
from specdyno.preflight.memory.flags import Flags
from specdyno.preflight.memory.weights import weight_bytes
from specdyno.records.memory import ArmMemory

# What a running request holds beyond its tokens for the drafts of one step.
_ONE_MORE = frozenset({Method.DFLASH})


@dataclass(frozen=True, slots=True)
class Subject:
    arm: Arm
    flags: Flags  # the plan's engine.args
    target: Checkpoint
    draft: Checkpoint | None  # None: the method has none, or it could not be read
    device: Device | None  # None: not known
    environment: Mapping[str, str]

    @property
    def native(self) -> bool:
        """Drafts with MTP layers that lie in the target's own files."""
        return self.arm.method is Method.MTP and self.arm.draft is None

    @property
    def lookahead_tokens(self) -> int:
        k = self.arm.draft_tokens or 0
        return k + 1 if self.arm.method in _ONE_MORE else k

    def draft_bytes(self, load_dtype: str | None = None) -> int | None:
        """Loaded size of the draft: 0 where the method has no weights of its own, None where they are not known."""
        if self.native:
            return weight_bytes(self.target, load_dtype=load_dtype, mtp=True)
        if self.arm.draft is None:
            return 0
        return weight_bytes(self.draft, load_dtype=load_dtype) if self.draft is not None else None

    def begun(self, *, load_dtype: str | None, ranks: int, max_model_len: int | None) -> ArmMemory:
        """The estimate as far as weights go, on one of `ranks` devices."""
        weights = weight_bytes(self.target, load_dtype=load_dtype, mtp=False)
        name = self.device.name if self.device is not None else "not known"
        return ArmMemory(
            arm=self.arm.name,
            device=name if ranks == 1 or self.device is None else f"{name}, the smallest of {ranks}",
            weights_bytes=_share(weights, ranks),
            draft_bytes=_share(self.draft_bytes(load_dtype), ranks),
            max_model_len=max_model_len,
            lookahead_tokens=self.lookahead_tokens,
        )


def _share(size: int | None, ranks: int) -> int | None:
    return None if size is None else -(-size // ranks)


NO_DEVICE = "room not known: no device of this host, and preflight.device_memory is not set"
NO_WEIGHTS = "weights not known: no tensor headers could be read"
