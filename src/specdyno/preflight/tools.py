"""Whether a class that asks with tools is answered as one: will the engine take them, and will the model see them?

A server whose chat template speaks of no tools leaves them out without a word, and a vLLM without a tool parser
refuses every request that has some. Both look like traffic with tools and are not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from specdyno.errors import PlanError
from specdyno.plan.engine import Engine, EngineKind
from specdyno.plan.schema import Plan
from specdyno.preflight.checkpoints.hub import Unreachable
from specdyno.preflight.checkpoints.schema import Checkpoint
from specdyno.preflight.schema import Check, Grade

ACCEPTED, SHOWN = "tools_accepted", "tools_shown"
NAMES = frozenset({ACCEPTED, SHOWN})

_VLLM = "vLLM 0.32, renderers/online_renderer.py"
_OWN_FORMAT = ("gpt_oss", "mistral", "ministral", "mixtral", "pixtral", "voxtral")  # vLLM parses their calls itself
_TEMPLATES = ("chat_template", "chat_template_file", "config")  # flags that may give another template

Read = Callable[[str, str | None], Checkpoint]


def check_tools(plan: Plan, classes: Collection[str], *, read: Read) -> tuple[Check, ...]:
    """Checks of the target for `classes`, which send tools; none where no class does, or nothing can be said.

    A target that cannot be read is told by the checks of pairs and is not told again.
    """
    if not classes or plan.engine.kind in (EngineKind.SIMULATED, EngineKind.EXTERNAL):
        return ()
    try:
        target = read(plan.target.model, plan.target.revision)
    except (PlanError, Unreachable):
        return ()
    return tuple(_checks(plan.engine, target, ", ".join(sorted(classes))))


def _checks(engine: Engine, target: Checkpoint, classes: str) -> Iterator[Check]:
    own_format = (target.model_type or "").startswith(_OWN_FORMAT)
    if engine.kind is EngineKind.VLLM and not own_format and not _given(engine, "enable_auto_tool_choice", "config"):
        yield Check(
            ACCEPTED,
            Grade.FAIL,
            f"vLLM refuses every request of {classes}: they hold tools, and it is started without a parser for calls",
            "Set engine.args: {enable-auto-tool-choice: true, tool-call-parser: hermes}, with the parser of this model",
            source=_VLLM,
            place="engine.args",
        )
    if target.shows_tools is False and not _given(engine, *_TEMPLATES):
        yield Check(
            SHOWN,
            Grade.WARN,
            f"the chat template of {target.source} speaks of no tools: the model sees none in {classes}, so these "
            "are not measured as traffic with tools",
            "Use a target that was made for tools, or give the engine a chat template that shows them",
            place="target.model",
        )


def _given(engine: Engine, *flags: str) -> bool:
    """Whether the engine is started with one of these flags (with underscores), by the plan or its own command."""
    stated = {key.replace("-", "_") for key, value in engine.args.items() if value is not False}
    stated |= {part.partition("=")[0].lstrip("-").replace("-", "_") for part in engine.command if part.startswith("--")}
    return not stated.isdisjoint(flags)
