"""Records to SQL values and back, without loss.

Owns how each type lies in a column. Text is TEXT, or UTF-8 bytes where it holds a NUL (SQLite's own functions would
cut it there) or a lone surrogate (no valid UTF-8); integers beyond 64 bits are their decimal digits as bytes. JSON is
written with its characters unescaped, because escapes would fuse two lone surrogates into one character.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from specdyno.records.columns import position_counts
from specdyno.records.schema import (
    BootRecord,
    BootStatus,
    CounterSample,
    Finding,
    FindingCode,
    Identity,
    Outcome,
    RequestRecord,
    Series,
    Severity,
    SpecSteps,
    StudyHeader,
    WindowKind,
    WindowRecord,
)

SqlValue = str | bytes | int | float | None

_INT64 = range(-(2**63), 2**63)
