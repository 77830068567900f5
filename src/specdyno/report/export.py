"""A study for other programs: report.json, the `vllm bench serve` keys, CSV and Parquet.

Owns the encodings. Full precision, None or an absent key where nothing was measured, the same bytes for the same
records. Files appear whole or not at all.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson

from specdyno.errors import PlanError, Problem
from specdyno.records.schema import StudyRecords
from specdyno.report import atomic, memory, rows, serve, untrusted
from specdyno.statistics.analysis import Analysis
from specdyno.verdict.schema import Verdict, to_json

REPORT_VERSION = 1
"""1: verdict, analysis, serve."""


class Format(StrEnum):
    CSV = "csv"
    PARQUET = "parquet"
    SERVE = "serve"


def export(
    records: StudyRecords, analysis: Analysis, verdict: Verdict, out_dir: Path, formats: Iterable[str]
) -> list[Path]:
    """Writes requests, windows, acceptance, contrasts and phases as CSV or Parquet, and serve.json; returns the paths.

    Raises `PlanError` for an unknown format or Parquet without its library, `RecordError` where a file cannot be
    written.
    """
    chosen = [_format(name) for name in dict.fromkeys(formats)]
    if Format.PARQUET in chosen:
        _pyarrow()
    paths = []
    for one in chosen:
        if one is Format.SERVE:
            keys = {"study": verdict.study, "runs": serve.entries(records.header, analysis)}
            paths.append(atomic.write(out_dir / "serve.json", _json(keys)))
        else:
            write = write_csv if one is Format.CSV else write_parquet
            paths += [write(out_dir / f"{table.name}.{one.value}", table) for table in rows.all_of(records, analysis)]
    return paths


def report_json(records: StudyRecords, analysis: Analysis, verdict: Verdict) -> str:
    """The verdict, everything it rests on and the `vllm bench serve` keys per arm and load."""
    head = {"version": REPORT_VERSION, "plan_sha256": records.header.plan_sha256}
    tail = {"serve": serve.entries(records.header, analysis), "memory": memory.as_tree(records)}
    return _json({**head, **_tree(verdict, analysis), **tail})


def verdict_json(verdict: Verdict, analysis: Analysis) -> str:
    """The verdict alone."""
    return _json(_tree(verdict, analysis)["verdict"])


def write_csv(path: Path, table: rows.Rows) -> Path:
    """One CSV file with a header line; text that a spreadsheet would take for a formula is neutralised."""
    with atomic.replacing(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(name for name, _ in table.columns)
        for batch in table.batches:
            writer.writerows([_csv_cell(value) for value in row] for row in batch)
        text.detach()
    return path


def write_parquet(path: Path, table: rows.Rows) -> Path:
    """One Parquet file; needs the extra `parquet`."""
    pa, parquet = _pyarrow()
    kinds = {"int": pa.int64(), "float": pa.float64(), "text": pa.string(), "bool": pa.bool_()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in table.columns])
    with atomic.replacing(path) as file, parquet.ParquetWriter(file, schema) as writer:
        for batch in table.batches:
            columns = [list(column) for column in zip(*batch, strict=True)] or [[] for _ in table.columns]
            arrays = [
                pa.array([_encodable(value) for value in column], field.type)
                for column, field in zip(columns, schema, strict=True)
            ]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
    return path


def _format(name: str) -> Format:
    try:
        return Format(name)
    except ValueError:
        known = ", ".join(one.value for one in Format)
        raise PlanError([Problem("--format", f'there is no format "{name}"', f"Use one of: {known}")]) from None


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra: only who asks for Parquet needs it
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        seen = "Parquet needs pyarrow, which is not installed"
        raise PlanError([Problem("--format", seen, 'Install it with: pip install "specdyno[parquet]"')]) from None
    return pa, parquet


def _csv_cell(value: object) -> object:
    return untrusted.cell(value) if isinstance(value, str) else value


def _encodable(value: object) -> object:
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value


def _tree(verdict: Verdict, analysis: Analysis) -> dict[str, Any]:
    """Verdict and analysis in the encoding that `verdict.schema.to_json` defines; a lone surrogate becomes "?"."""
    tree: dict[str, Any] = orjson.loads(to_json(verdict, analysis).encode("utf-8", "replace"))
    return tree


def _json(value: object) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n"
