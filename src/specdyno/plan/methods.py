"""The engine-neutral names of the ways to draft, and which of them need a draft."""

from __future__ import annotations

from enum import StrEnum


class Method(StrEnum):
    """Engine-neutral names of the ways to draft."""

    NGRAM = "ngram"
    SUFFIX = "suffix"
    DRAFT_MODEL = "draft_model"
    PARD = "pard"
    EAGLE = "eagle"
    EAGLE3 = "eagle3"
    MTP = "mtp"
    GEMMA4_MTP = "gemma4_mtp"
    DFLASH = "dflash"
    DSPARK = "dspark"
    MEDUSA = "medusa"


NEEDS_DRAFT = frozenset(
    {
        Method.DRAFT_MODEL,
        Method.PARD,
        Method.EAGLE,
        Method.EAGLE3,
        Method.GEMMA4_MTP,
        Method.DFLASH,
        Method.DSPARK,
        Method.MEDUSA,
    }
)
TAKES_NO_DRAFT = frozenset({Method.NGRAM, Method.SUFFIX})
