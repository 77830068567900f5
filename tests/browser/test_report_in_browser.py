import base64
import json

import pytest

pytestmark = pytest.mark.browser

MINUS = "\u2212"
ALL_TEXT = "return document.body.textContent"


def percent(ratio):
    """A gain as the page should spell it, written apart from the program's own spelling."""
    return f"{(ratio - 1) * 100:+.1f}\u00a0%".replace("-", MINUS)


def events_of(browser):
    return [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]


def requests_of(browser):
    """Every address that the page asked for, its own left out."""
    asked = [
        event["params"]["request"]["url"]
        for event in events_of(browser)
        if event["method"] == "Network.requestWillBeSent"
    ]
    return [address for address in asked if address != browser.current_url and not address.startswith("data:")]


@pytest.mark.parametrize("name", ["hand", "judged", "hostile"])
def test_the_page_opens_without_a_complaint_or_a_request(opened, name):
    browser = opened(name)
    assert browser.find_element("css selector", "h1").text
    assert [entry["message"] for entry in browser.get_log("browser")] == []
    assert requests_of(browser) == []


def test_the_policy_stops_a_script_and_an_image_put_in_later(opened):
    browser = opened("hand")
    browser.execute_script(
        "const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s);"
        "const i = new Image(); i.src = 'https://example.org/x.png'; document.body.append(i);"
    )
    assert browser.execute_script("return window.ran") is None
    assert any("Content Security Policy" in entry["message"] for entry in browser.get_log("browser"))
    failed = [event["params"] for event in events_of(browser) if event["method"] == "Network.loadingFailed"]
    assert [event.get("blockedReason") for event in failed] == ["csp"]


@pytest.mark.parametrize("name", ["hand", "judged"])
def test_the_numbers_shown_are_those_of_the_json(opened, studies, name):
    browser = opened(name)
    report = json.loads((studies[name] / "report.json").read_text())
    shown = browser.execute_script(
        "return [...document.querySelectorAll('#speed > table.forest')].map(table => "
        "[...table.tBodies[0].rows].map(row => [...row.cells].map(cell => cell.textContent.trim())))"
    )
    expected = []
    for objective in report["verdict"]["objectives"]:
        rows = []
        for one in objective["candidates"]:
            ratio = next(gate["ratio"] for gate in one["gates"] if gate["name"] == "primary")
            rows.append((one["candidate"], percent(ratio["estimate"]), percent(ratio["low"]), percent(ratio["high"])))
        expected.append(rows)
    found = [[(row[0], row[2], *row[3].split(" 9")[0].split(" to ")) for row in table] for table in shown]
    assert found == expected


def test_exploratory_numbers_are_those_of_the_json_too(opened, studies):
    browser = opened("judged")
    report = json.loads((studies["judged"] / "report.json").read_text())
    text = browser.execute_script("return document.querySelector('#speed').textContent")
    measures = {"interactive": "time_per_job", "pool": "jobs_per_s"}
    cells = [c for c in report["analysis"]["contrasts"] if c["class_name"] and c["measure"] == measures[c["load"]]]
    assert len(cells) == 12
    assert all(percent(cell["ratio"]["estimate"]) in text for cell in cells)


def test_a_point_stands_where_its_number_says(opened, studies):
    """The marks of a strip are ordered as the estimates, and a gain stands right of the line at one."""
    browser = opened("judged")
    report = json.loads((studies["judged"] / "report.json").read_text())
    places = browser.execute_script(
        "return [...document.querySelectorAll('#speed > table.forest')].map(table => [...table.tBodies[0].rows].map("
        "row => { const box = q => row.querySelector(q).getBoundingClientRect(), at = b => b.left + b.width / 2;"
        "return at(box('svg.strip path.mark')) - at(box('line.one')) }))"
    )
    for row, objective in zip(places, report["verdict"]["objectives"], strict=True):
        gains = [one["gates"][0]["ratio"]["estimate"] for one in objective["candidates"]]
        assert sorted(range(len(gains)), key=gains.__getitem__) == sorted(range(len(row)), key=row.__getitem__)
        assert [place > 0 for place in row] == [gain > 1 for gain in gains]


def test_markup_from_outside_stays_text(opened):
    browser = opened("hostile")
    assert browser.execute_script("return document.querySelectorAll('script, img').length") == 0
    text = browser.execute_script(ALL_TEXT)
    assert text.count("<script>alert(1)</script>") > 20
    assert "\x1b" not in text


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_light_and_dark_follow_the_reader_and_stay_legible(opened, scheme, dark):
    browser = opened("hand", scheme=scheme)
    colours = browser.execute_script(
        "const rgb = c => c.match(/[\\d.]+/g).slice(0, 3).map(Number), s = getComputedStyle;"
        "return [s(document.body).backgroundColor, s(document.body).color,"
        "s(document.querySelector('.note')).color, s(document.querySelector('.badge')).color].map(rgb)"
    )
    ground, *inks = [luminance(colour) for colour in colours]
    assert (ground < 0.2) is dark
    contrasts = [(max(ground, ink) + 0.05) / (min(ground, ink) + 0.05) for ink in inks]
    assert min(contrasts) >= 4.5


def luminance(colour):
    """Relative luminance as WCAG defines it."""
    parts = [value / 255 for value in colour]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("name", ["hand", "judged", "hostile"])
def test_a_narrow_screen_scrolls_no_page_sideways_even_with_all_details_open(opened, name):
    browser = opened(name, width=360)
    browser.execute_script("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 360


def test_letters_of_charts_stay_readable_on_a_narrow_screen(opened):
    browser = opened("hand", width=360)
    heights = browser.execute_script(
        "return [...document.querySelectorAll('svg text')].map(t => t.getBoundingClientRect().height)"
        ".filter(height => height > 0)"
    )
    assert len(heights) > 50
    assert min(heights) >= 11


def test_no_label_leaves_its_chart(opened):
    browser = opened("hand")
    outside = browser.execute_script(
        "return [...document.querySelectorAll('svg.panel')].flatMap(svg => { const b = svg.getBoundingClientRect();"
        "return [...svg.querySelectorAll('text')].filter(t => { const r = t.getBoundingClientRect();"
        "return r.width && (r.left < b.left - 1 || r.right > b.right + 1 ||"
        "r.top < b.top - 1 || r.bottom > b.bottom + 1)"
        "}).map(t => t.textContent) })"
    )
    assert outside == []


def test_print_shows_what_is_folded_away_on_black_and_white(opened):
    browser = opened("hand", scheme="dark", media="print")
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.execute_script("return document.querySelector('nav').offsetHeight") == 0
    folded = "return document.querySelector('#plan details:not([open]) table').checkVisibility()"
    assert browser.execute_script(folded)
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")


def test_tables_have_headers_and_charts_have_names(opened):
    browser = opened("hand")
    unnamed = "return [...document.querySelectorAll('svg[role=img] > title')].filter(t => !t.textContent).length"
    assert browser.execute_script(unnamed) == 0
    headless = "return [...document.querySelectorAll('table')].filter(t => !t.querySelector('th[scope=col]')).length"
    assert browser.execute_script(headless) == 0
