import math

import pytest

from specdyno.report import spelling
from specdyno.statistics.intervals import Interval, Undefined

MINUS, TIMES = "\u2212", "\u00d7"


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(1.118, "+11.8 %"), (0.95, f"{MINUS}5.0 %"), (1.0, "0.0 %"), (0.99999, "0.0 %"), (3.0, "+200.0 %")],
)
def test_a_ratio_reads_as_a_gain(ratio, text):
    assert spelling.change(ratio) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0123, "12.3 ms"),
        (1.5, "1.50 s"),
        (75, "1 min 15 s"),
        (3600, "1 h"),
        (3725, "1 h 2 min"),
        (86_400 * 2 + 3600, "2 d 1 h"),
    ],
)
def test_a_duration_takes_its_two_largest_units(value, text):
    assert spelling.seconds(value) == text


@pytest.mark.parametrize("write", [spelling.plain, spelling.share, spelling.change, spelling.times, spelling.seconds])
@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_what_is_no_number_is_not_measured(write, value):
    assert write(value) == "not measured"


def test_an_interval_states_its_level():
    value = Interval(1.118, 1.081, 1.156, 0.9827, "t over blocks", 4)
    assert spelling.with_interval(value, spelling.change) == "+11.8 % (98.27 % interval +8.1 % to +15.6 %)"


def test_undefined_states_its_reason_and_no_number():
    assert spelling.with_interval(Undefined("one block only", 1), spelling.change) == "not measured (one block only)"


def test_small_and_large_numbers_keep_three_digits():
    written = [spelling.plain(value) for value in (0.01234, 1.234, 12.34, 123.4, 1234.5, -0.0, -1.5)]
    assert written == ["0.0123", "1.23", "12.3", "123", "1,234", "0", f"{MINUS}1.50"]


def test_a_factor_and_bytes():
    assert spelling.times(1.1184) == f"1.118{TIMES}"
    assert spelling.size(512 * 2**20) == "512 MiB"
    assert spelling.size(7_340_032_000) == "6.84 GiB"
