import pytest

from specdyno.report import untrusted

ESC = "\x1b"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"a{ESC}[31mred{ESC}[0m", "ared"),
        (f"{ESC}]0;title\x07b", "b"),
        (f"{ESC}]8;;http://x{ESC}\\link", "link"),
        ("a\nb\tc\r\nd", "a b c d"),
        ("\u202eevil\u2066", "evil"),
        ("bell\x07\x9b31mx", "bellx"),
        ("lone\ud800", "lone\ufffd"),
        ("t\U000e0041ag", "tag"),
        ("na\u00efve \u4e2d\u6587", "na\u00efve \u4e2d\u6587"),
    ],
)
def test_only_visible_text_is_left(text, kept):
    assert untrusted.sanitise(text) == kept


def test_lines_are_kept_on_request():
    assert untrusted.sanitise(f"a\r\nb{ESC}[1m\n", lines=True) == "a\nb\n"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x"])
def test_a_spreadsheet_sees_no_formula(text):
    assert untrusted.cell(text) == f"'{text}"


def test_a_formula_behind_a_control_character_is_caught_too():
    assert untrusted.cell("\x00\t=1+1") == "'=1+1"


def test_markdown_shows_markup_as_text():
    assert untrusted.markdown("<b>|[x](y)") == r"&lt;b&gt;\|\[x\](y)"
    assert "https://" not in untrusted.markdown("https://x")
    assert "www.x" not in untrusted.markdown("www.x")
