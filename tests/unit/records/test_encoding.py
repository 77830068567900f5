"""Blobs are small, and damage in them is noticed."""

from __future__ import annotations

import sqlite3
import struct
import zlib

import numpy as np
import pytest

from specdyno.records.encoding import read_chunks, read_counts, write_chunks, write_counts, write_text


def test_plain_text_is_text_for_the_sqlite_shell():
    kinds = [write_text(text) for text in ("naïve 😀", "cut\0here", "lone \udc80")]
    assert [type(kind) for kind in kinds] == [str, bytes, bytes]
    connection = sqlite3.connect(":memory:")
    lengths = [connection.execute("SELECT length(?)", (kind,)).fetchone()[0] for kind in kinds]
    connection.close()
    assert lengths == [7, 8, 8]  # the last two in bytes, nothing cut at the NUL


def test_a_chunk_takes_five_bytes():
    blob = write_chunks(range(10**15, 10**15 + 10**9, 10**6), [5] * 1000)
    assert len(blob) < 5_050
    stamps, sizes = read_chunks(blob)
    assert (stamps[-1], sizes.sum()) == (10**15 + 999 * 10**6, 5000)


@pytest.mark.parametrize("stamps", [(0, 2**31), (5, 2**63 - 1, -(2**63)), (7,), (9, 3)])
def test_stamps_of_any_distance_survive(stamps):
    back, sizes = read_chunks(write_chunks(stamps, ()))
    assert (tuple(back.tolist()), sizes.tolist()) == (stamps, [])


@pytest.mark.parametrize(("width", "code"), [(4, "<i4"), (8, "<i8")])
def test_chunks_of_earlier_files_are_read(width, code):
    stamps, sizes = np.array([10**15, 20_000_000, -5], "<i8"), np.array([7, 3], code)
    content = struct.pack("<BII", width, 3, 2) + stamps.tobytes() + sizes.tobytes()
    back, chars = read_chunks(zlib.compress(content))
    assert back.tolist() == [10**15, 10**15 + 20_000_000, 10**15 + 19_999_995]
    assert chars.tolist() == [7, 10]


@pytest.mark.parametrize("sizes", [(2**31 - 1, 0, 2**31 - 1), (2**40, 0), (127, -128), (128, 0), (2**15, 1), ()])
def test_sizes_of_any_width_survive(sizes):
    stamps, back = read_chunks(write_chunks((1, 2, 3), sizes))
    assert (stamps.tolist(), back.tolist()) == ([1, 2, 3], list(sizes))


@pytest.mark.parametrize("content", [b"", b"\x04", b"\x07" + bytes(8), b"\x04\x01" + bytes(7)])
def test_chunks_that_do_not_fit_their_header_are_refused(content):
    with pytest.raises(ValueError, match="chunk stamps"):
        read_chunks(zlib.compress(content))


@pytest.mark.parametrize("blob", [b"", b"\x04", b"\x07\x01" + bytes(8), b"\x04\x01\x01" + bytes(7), bytes(10)])
def test_chunks_that_are_cut_or_of_no_known_width_are_refused(blob):
    with pytest.raises(ValueError, match="chunk stamps"):
        read_chunks(blob)


def test_counts_of_different_lengths_share_one_table():
    one = write_counts(np.array([4.0]), np.array([5.0]))
    two = write_counts(np.array([3.0, 1.0]), np.array([np.nan, np.nan]))
    reached, at_risk = read_counts([two, None, one], 2)
    np.testing.assert_array_equal(reached, [[3, 1], [np.nan, np.nan], [4, 0]])
    np.testing.assert_array_equal(at_risk, [[np.nan, np.nan], [np.nan, np.nan], [5, 0]])
