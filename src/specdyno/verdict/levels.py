"""How an objective's allowed error is shared out between candidates, looks, the whole traffic and single classes."""

from __future__ import annotations

from specdyno.plan.looks import ALPHA, MIXTURE_SHARE, cells, nominal_level, objective_level

__all__ = ["ALPHA", "EQUIVALENCE_ALPHA", "MIXTURE_SHARE", "cells", "nominal_level", "objective_level"]

EQUIVALENCE_ALPHA = 0.10
"""Two one-sided tests at 95 % each: the estimate's 90 % interval must lie within the margins."""
