"""Starts the simulated engine: `python -m specdyno.engine.simulated --model NAME --port P`.

Owns the life of the process: what it logs at start, when it refuses to boot, how it stops. Ends with 0 on SIGTERM and
SIGINT, 1 where the boot fails, 2 where the command line is wrong.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys

import uvloop
from aiohttp import web

from specdyno import __version__
from specdyno.engine.simulated.faults import Fault
from specdyno.engine.simulated.server import Server
from specdyno.engine.simulated.settings import Settings, read_settings
from specdyno.engine.simulated.truth import uniform

_log = logging.getLogger("specdyno.engine.simulated")
_CHILD_LIFE_S = 600  # a bound, should nobody end it
_BOOT_SALT = 77


def main() -> int:
    """Run until told to stop; the exit status."""
    settings = read_settings(sys.argv[1:])
    logging.basicConfig(format="%(levelname)s %(asctime)s [simulated] %(message)s", level=logging.INFO)
    _log_start(settings)
    if uniform(settings.boot_seed, 0, _BOOT_SALT) < settings.faults.get(Fault.REFUSE_BOOT, 0.0):
        draft = settings.speculation.model if settings.speculation else settings.model
        _log.error("OSError: %s does not appear to have a file named config.json.", draft)
        _log.error("Engine core initialization failed. See root cause above.")
        return 1
    if Fault.CHILD in settings.faults:
        child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({_CHILD_LIFE_S})"])
        _log.info("started child process %d", child.pid)
    try:
        uvloop.run(_serve(settings))
    except OSError as error:
        _log.error("cannot listen on %s:%d: %s", settings.host, settings.port, error)
        return 1
    return 0


def _log_start(settings: Settings) -> None:
    _log.info(
        "Initializing the simulated engine (v%s) with config: model=%r, speculative_config=%s, %s",
        __version__,
        settings.model,
        settings.speculation,
        ", ".join(f"{name}={value!r}" for name, value in settings.flags.items() if name != "model"),
    )
    _log.info("boot_seed=%d time_scale=%g", settings.boot_seed, settings.time_scale)
    if settings.faults:
        _log.warning("faults in force: %s", ", ".join(f"{fault}:{value:g}" for fault, value in settings.faults.items()))
    if Fault.LOG_SECRETS in settings.faults:
        _log.info("Authorization: Bearer %s", settings.api_key or "simulated-credential-not-real")
        _log.info("environment: HF_TOKEN=simulated-token-not-real")
    if Fault.LOG_ESCAPE in settings.faults:
        _log.info("\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b[2J <script>document.title='owned'</script> & </pre>")


async def _serve(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    delay_s = settings.faults.get(Fault.SLOW_STOP, 0.0)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: loop.call_later(delay_s, stop.set))
    runner = web.AppRunner(Server(settings).app(), access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
    await runner.setup()
    try:
        site = web.TCPSite(runner, settings.host, settings.port, backlog=1024)
        await site.start()
        _log.info("Application startup: listening on http://%s:%d", *runner.addresses[0][:2])
        await stop.wait()
        _log.info("Shutting down")
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    sys.exit(main())
