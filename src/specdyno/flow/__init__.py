"""The steps of a study, in order: plan, preflight, engine, load, records, statistics, verdict, report.

The only package that knows every stage. `run` measures up to the deciding look and always leaves a judged study;
`judge` and `report` need nothing but the records.
"""

from specdyno.flow.checking import Checked, check, read_plan
from specdyno.flow.judging import Deployment, Judged, exit_code, export, judge, read_study, settings
from specdyno.flow.opening import DATABASE
from specdyno.flow.readings import measure, read
from specdyno.flow.running import run

__all__ = [
    "DATABASE",
    "Checked",
    "Deployment",
    "Judged",
    "check",
    "exit_code",
    "export",
    "judge",
    "measure",
    "read",
    "read_plan",
    "read_study",
    "run",
    "settings",
]
