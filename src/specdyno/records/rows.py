"""Records to rows and back: which field lies in which column.

Owns the lists of columns (the shape itself stands in `migrations`). Reading raises ValueError, KeyError or TypeError
where a row is damaged or holds a name this version does not know; `store` makes a `RecordError` of it.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import asdict, fields
from operator import sub
from typing import Any

from specdyno.records.columns import position_counts
from specdyno.records.encoding import (
    SqlValue,
    read_chunks,
    read_integer,
    read_json,
    read_text,
    write_chunks,
    write_counts,
    write_integer,
    write_json,
    write_text,
)
from specdyno.records.memory import ArmMemory, read_memory
from specdyno.records.schema import (
    Arrival,
    ArrivalKind,
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

Row = Mapping[str, Any]

_SPEC_FIELDS = tuple(field.name for field in fields(SpecSteps))
_SPEC_LISTS = ("acceptance_histogram", "per_step_accepted", "per_step_drafted", "problems")
_TOKEN_FIELDS = ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens", "max_tokens")


def plain_value(value: object) -> SqlValue:
    """One field of a cold table (study, boot, window, finding) as a column: scalars as they are, the rest as JSON."""
    if value is None or isinstance(value, bytes | float):
        return value
    if isinstance(value, str):
        return write_text(value)
    if isinstance(value, int):
        return write_integer(value)
    if isinstance(value, tuple):
        value = [asdict(one) if isinstance(one, ArmMemory) else one for one in value]
    return write_json(asdict(value) if isinstance(value, Identity | Arrival) else value)


def request_row(window_id: int, record: RequestRecord) -> dict[str, SqlValue]:
    """The columns of `request`: everything that numbers are made of, small enough to read a million of."""
    stamps, spec = record.chunk_ns, record.spec
    counts = position_counts(spec) if spec else None
    return {
        "window_id": window_id,
        "list_index": record.index,
        "prompt_id": write_text(record.prompt_id),
        "class_name": write_text(record.class_name),
        "outcome": record.outcome.value,
        "intended_ns": record.intended_ns,
        "sent_ns": record.sent_ns,
        "first_byte_ns": record.first_byte_ns,
        "first_text_ns": stamps[0] if stamps else None,
        "last_text_ns": stamps[-1] if stamps else None,
        "last_byte_ns": record.last_byte_ns,
        "longest_gap_ns": max(map(sub, stamps[1:], stamps), default=None),
        "chunks": len(stamps),
        "status": write_integer(record.status),
        "finish_reason": None if record.finish_reason is None else write_text(record.finish_reason),
        **{name: write_integer(getattr(record, name)) for name in _TOKEN_FIELDS},
        "spec_source": write_text(spec.source) if spec else None,
        "spec_steps": write_integer(spec.num_spec_steps) if spec else None,
        "spec_drafted": write_integer(spec.num_draft_tokens) if spec else None,
        "spec_accepted": write_integer(spec.num_accepted_draft_tokens) if spec else None,
        "spec_counts": write_counts(*counts) if counts else None,
        "session": None if record.session is None else write_text(record.session),
        "turn": write_integer(record.turn),
        "phase": None if record.phase is None else write_text(record.phase),
        "supplied": write_integer(record.supplied),
    }


def answer_row(request_id: int, record: RequestRecord) -> dict[str, SqlValue]:
    """The columns of `answer`: the raw facts of the exchange, read one request at a time."""
    spec = record.spec
    return {
        "request_id": request_id,
        "prompt_sha256": write_text(record.prompt_sha256),
        "error": write_text(record.error),
        "text": write_text(record.text),
        "reasoning": write_text(record.reasoning),
        "tool_calls": write_json(record.tool_calls),
        "spec": write_json({name: getattr(spec, name) for name in _SPEC_FIELDS}) if spec else None,
        "chunk_stamps": write_chunks(record.chunk_ns, record.chunk_chars),
    }


def request_of(row: Row) -> RequestRecord:
    """One exchange from a row of `request` joined with its `answer`, equal to what was written."""
    stamps, sizes = read_chunks(row["chunk_stamps"])
    return RequestRecord(
        index=row["list_index"],
        prompt_id=read_text(row["prompt_id"]),
        prompt_sha256=read_text(row["prompt_sha256"]),
        class_name=read_text(row["class_name"]),
        intended_ns=row["intended_ns"],
        sent_ns=row["sent_ns"],
        outcome=Outcome(row["outcome"]),
        first_byte_ns=row["first_byte_ns"],
        last_byte_ns=row["last_byte_ns"],
        chunk_ns=tuple(stamps.tolist()),
        chunk_chars=tuple(sizes.tolist()),
        status=read_integer(row["status"]),
        error=read_text(row["error"]),
        finish_reason=None if row["finish_reason"] is None else read_text(row["finish_reason"]),
        text=read_text(row["text"]),
        reasoning=read_text(row["reasoning"]),
        tool_calls=tuple(read_json(row["tool_calls"])),
        spec=None if row["spec"] is None else _spec_of(read_json(row["spec"])),
        session=None if row["session"] is None else read_text(row["session"]),
        turn=read_integer(row["turn"]),
        phase=None if row["phase"] is None else read_text(row["phase"]),
        supplied=read_integer(row["supplied"]),
        **{name: read_integer(row[name]) for name in _TOKEN_FIELDS},
    )


def _spec_of(values: dict[str, Any]) -> SpecSteps:
    lists = {name: tuple(values[name]) for name in _SPEC_LISTS if values[name] is not None}
    return SpecSteps(**{**values, **lists})


def sample_row(window_id: int, moment: str, sample: CounterSample, raw: str) -> dict[str, SqlValue]:
    """The columns of `counter_sample`; `raw` is the scraped text, kept so that it can be parsed again."""
    return {
        "window_id": window_id,
        "moment": moment,
        "stamp_ns": sample.stamp_ns,
        "source": write_text(sample.source),
        "process_start": sample.process_start,
        "series": write_json([[series.name, series.labels, series.value] for series in sample.series]),
        "problems": write_json(sample.problems),
        "raw": zlib.compress(raw.encode(errors="surrogatepass")),
    }


def sample_of(row: Row) -> CounterSample:
    return CounterSample(
        stamp_ns=row["stamp_ns"],
        source=read_text(row["source"]),
        series=tuple(
            Series(name, tuple((key, label) for key, label in labels), value)
            for name, labels, value in read_json(row["series"])
        ),
        process_start=row["process_start"],
        problems=tuple(read_json(row["problems"])),
    )


def raw_text_of(row: Row) -> str:
    return zlib.decompress(row["raw"]).decode(errors="surrogatepass")


def boot_of(row: Row) -> BootRecord:
    values = {name: _scalar(row[name]) for name in _names(BootRecord)}
    values["status"] = BootStatus(values["status"])
    values["command"] = tuple(read_json(row["command"]))
    values["identity"] = None if row["identity"] is None else Identity(**read_json(row["identity"]))
    return BootRecord(**values)


def window_of(row: Row, samples: Mapping[str, CounterSample]) -> WindowRecord:
    """One window; `samples` are its counters by moment."""
    values = {name: _scalar(row[name]) for name in _names(WindowRecord) if name not in ("before", "after")}
    values["kind"] = WindowKind(values["kind"])
    values["concurrency"] = values["concurrency"] or None
    values["arrival"] = None if row["arrival"] is None else _arrival_of(read_json(row["arrival"]))
    return WindowRecord(**values, before=samples.get("before"), after=samples.get("after"))


def _arrival_of(values: dict[str, Any]) -> Arrival:
    return Arrival(**{**values, "kind": ArrivalKind(values["kind"])})


def finding_of(row: Row) -> Finding:
    values = {name: _scalar(row[name]) for name in _names(Finding)}
    values["code"], values["severity"] = FindingCode(values["code"]), Severity(values["severity"])
    return Finding(**values)


def header_of(row: Row) -> StudyHeader:
    return StudyHeader(
        plan=read_json(row["plan"]),
        plan_yaml=read_text(row["plan_yaml"]),
        plan_sha256=read_text(row["plan_sha256"]),
        created_unix_ns=row["created_unix_ns"],
        provenance=read_json(row["provenance"]),
        sizing=read_json(row["sizing"]),
        memory=tuple(read_memory(one) for one in read_json(row["memory"])),
    )


def _names(record: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(record))


def _scalar(value: Any) -> Any:
    return read_text(value) if isinstance(value, bytes) else value
