"""When the requests of one window were due, sent, answered and over: one shape for rows and for columns.

The load side reads it while it searches for a rate, the audit and the statistics read it from the records; so both
judge a window by the same functions (`records.queueing`, `records.service`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specdyno.records.schema import Outcome, RequestRecord, Requests

Int64s = npt.NDArray[np.int64]

_DONE = tuple(code for code, outcome in enumerate(Outcome) if outcome.done)


@dataclass(frozen=True)
class Timings:
    """One entry per request, in any order. Stamps are ns, -1 where there is none; `tokens` is NaN where unknown."""

    intended_ns: Int64s
    sent_ns: Int64s
    first_text_ns: Int64s
    last_text_ns: Int64s
    ended_ns: Int64s
    tokens: npt.NDArray[np.float64]
    done: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.intended_ns)

    @classmethod
    def of_columns(cls, requests: Requests, rows: np.ndarray) -> Timings:
        """The requests of a study at `rows`."""
        return cls(
            intended_ns=requests.intended_ns[rows],
            sent_ns=requests.sent_ns[rows],
            first_text_ns=requests.first_text_ns[rows],
            last_text_ns=requests.last_text_ns[rows],
            ended_ns=requests.ended_ns[rows],
            tokens=requests.tokens[rows],
            done=np.isin(requests.outcome_code[rows], _DONE),
        )

    @classmethod
    def of_records(cls, records: Sequence[RequestRecord]) -> Timings:
        """The same requests while they are measured."""

        def stamps(values: list[int | None]) -> Int64s:
            return np.array([-1 if value is None else value for value in values], np.int64)

        return cls(
            intended_ns=stamps([row.intended_ns for row in records]),
            sent_ns=stamps([row.sent_ns for row in records]),
            first_text_ns=stamps([row.chunk_ns[0] if row.chunk_ns else None for row in records]),
            last_text_ns=stamps([row.chunk_ns[-1] if row.chunk_ns else None for row in records]),
            ended_ns=stamps([row.last_byte_ns for row in records]),
            tokens=np.array([row.completion_tokens for row in records], np.float64),
            done=np.array([row.outcome.done for row in records], bool),
        )
