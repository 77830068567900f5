"""The files of a finished study that people and programs read: verdict.json, report.html, report.md, report.json.

Deterministic bytes: nothing here asks for the time, the host or a path that the records do not hold.
"""

from __future__ import annotations

from pathlib import Path

from specdyno.records.schema import StudyRecords
from specdyno.report import atomic, export, html, markdown, view
from specdyno.statistics.analysis import Analysis
from specdyno.verdict.schema import Verdict

VERDICT = "verdict.json"
PAGE = "report.html"
MARKDOWN = "report.md"
REPORT = "report.json"


def write(study_dir: Path, records: StudyRecords, analysis: Analysis, verdict: Verdict) -> tuple[Path, ...]:
    """Writes the four files, each whole or not at all, and returns their paths, the verdict first.

    Raises `RecordError` where they cannot be written.
    """
    shown = view.build(records, analysis, verdict)
    texts = {
        VERDICT: export.verdict_json(verdict, analysis),
        PAGE: html.render(shown),
        MARKDOWN: markdown.render(shown),
        REPORT: export.report_json(records, analysis, verdict),
    }
    return tuple(atomic.write(study_dir / name, text) for name, text in texts.items())
