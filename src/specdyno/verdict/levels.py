"""How an objective's allowed error is shared out between candidates, looks, the whole traffic and single classes."""

from __future__ import annotations

from specdyno.plan.looks import MIXTURE_SHARE, nominal_level

__all__ = ["ALPHA", "EQUIVALENCE_ALPHA", "MIXTURE_SHARE", "nominal_level"]

ALPHA = 0.05
"""Two-sided; a promote uses the upper half only."""

EQUIVALENCE_ALPHA = 0.10
"""Two one-sided tests at 95 % each: the estimate's 90 % interval must lie within the margins."""
