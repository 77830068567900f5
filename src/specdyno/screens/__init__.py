"""What the verbs show in the terminal, as rich renderables.

Belongs to the command line: it may look at both sides of the records.
"""

from specdyno.screens.plans import checked, published, published_json
from specdyno.screens.readings import measured, reading, reading_json
from specdyno.screens.studies import deployments, deployments_json
from specdyno.screens.workload import imported, inspected

__all__ = [
    "checked",
    "deployments",
    "deployments_json",
    "imported",
    "inspected",
    "measured",
    "published",
    "published_json",
    "reading",
    "reading_json",
]
