"""The command line: verbs, options, exit codes. Everything a verb does is one call of `flow`."""

from __future__ import annotations

import signal
import sys

from specdyno.cli import plans, readings, studies, workload
from specdyno.cli.app import app

__all__ = ["app", "main", "workload"]

# As a user meets them, and as `--help` lists them.
app.registered_commands = [
    command
    for function in (
        *(studies.demo, plans.init, plans.check, studies.run, studies.judge, studies.report, studies.export),
        *(studies.settings, plans.published, readings.measure, readings.read),
    )
    for command in app.registered_commands
    if command.callback is function
]


def main() -> None:
    """Entry point of the `specdyno` command."""
    # A polite end from a scheduler is handled as Ctrl-C is: the engine is stopped, the boot is marked.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    sys.exit(app(standalone_mode=True))
