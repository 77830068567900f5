"""The report in the browser that Debian ships, headless; skipped with the reason where there is none."""

import shutil

import pytest
from tests.simulation.generator import make_study
from tests.unit.report.hand_made_study import hostile, study

from specdyno.report import files
from specdyno.verdict.decide import judge

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--disable-dev-shm-usage",
)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("chromium or chromedriver is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield opened
    opened.quit()


@pytest.fixture(scope="session")
def studies(tmp_path_factory):
    """Folders with the files of three studies: made by hand, hostile, generated and judged."""
    records = make_study(blocks=4)
    found = {}
    for name, parts in (("hand", study()), ("hostile", hostile()), ("judged", (records, *judge(records)))):
        found[name] = tmp_path_factory.mktemp(name)
        files.write(found[name], *parts)
    return found


@pytest.fixture
def opened(browser, studies):
    """Opens a study's page from disk in the asked width and scheme; the browser's logs begin anew."""

    def open_page(name, *, width=1100, scheme="light", media=""):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
        for log in ("browser", "performance"):
            browser.get_log(log)
        browser.get((studies[name] / "report.html").as_uri())
        return browser

    return open_page
