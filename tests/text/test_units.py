import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtool.errors import UsageError
from gradtool.text.units import (
    format_bytes,
    format_count,
    format_percent,
    format_seconds,
    parse_bytes,
)


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (10 * 1024, "10.0 KiB"),
        (1024**2 - 1, "1.00 MiB"),
        (402 * 1024**2, "402 MiB"),
        (1023 * 1024**2, "1023 MiB"),
        (3_661_459_620, "3.41 GiB"),
        (5000 * 1024**6, "5000 EiB"),
        (-2048, "-2.00 KiB"),
    ],
)
def test_bytes_have_three_digits_and_a_binary_unit(n, text):
    assert format_bytes(n) == text


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("8GiB", 8 * 1024**3),
        ("8GB", 8 * 10**9),
        ("512 MiB", 512 * 1024**2),
        (" 2.5gib ", 5 * 1024**3 // 2),
        ("1024", 1024),
        ("7B", 7),
        ("0.1KiB", 102),
    ],
)
def test_a_size_is_read_in_either_kind_of_unit(text, n):
    assert parse_bytes(text) == n


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("8G", "'8G' is ambiguous: write 8GiB (2^30) or 8GB (10^9)"),
        ("1.5m", "'1.5m' is ambiguous: write 1.5MiB (2^20) or 1.5MB (10^6)"),
        ("8KM", "'8KM' has an unknown unit: use B, KiB MiB GiB TiB or KB MB GB TB"),
        ("", "'' is not a size: write bytes, or a unit as in 512MiB or 8GB"),
        ("-1", "'-1' is not a size: write bytes, or a unit as in 512MiB or 8GB"),
        ("\x1b[31m", r"'\x1b[31m' is not a size: write bytes, or a unit as in 512MiB or 8GB"),
    ],
)
def test_what_is_no_size_is_refused_with_a_hint(text, message):
    with pytest.raises(UsageError) as error:
        parse_bytes(text)

    assert str(error.value) == message


def test_a_refused_size_is_not_repeated_in_full():
    with pytest.raises(UsageError) as error:
        parse_bytes("9" * 10_000)

    assert len(str(error.value)) < 200


@given(st.integers(0, 2**80))
def test_a_printed_size_reads_back_to_three_digits(n):
    error = abs(parse_bytes(format_bytes(n)) - n)

    assert error == 0 if n < 1024 else 200 * error <= n + 200


@given(st.integers(0, 10**20))
def test_plain_bytes_read_back_exactly(n):
    assert parse_bytes(str(n)) == n
    assert parse_bytes(f"{n}KiB") == 1024 * n


@given(st.integers(0, 2**70), st.integers(0, 2**70))
def test_a_larger_size_never_prints_smaller(a, b):
    low, high = sorted((a, b))

    assert parse_bytes(format_bytes(low)) <= parse_bytes(format_bytes(high))


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (161, "161"),
        (9999, "9999"),
        (10_000, "10.0 k"),
        (999_999, "1.00 M"),
        (25_557_032, "25.6 M"),
        (4_089_000_000, "4.09 G"),
        (-12_345, "-12.3 k"),
    ],
)
def test_counts_are_exact_until_they_are_long(n, text):
    assert format_count(n) == text


@pytest.mark.parametrize(
    ("s", "text"),
    [
        (0.0, "0.00 s"),
        (1.5e-5, "15.0 µs"),
        (0.0123, "12.3 ms"),
        (0.9999, "1.00 s"),
        (59.4, "59.4 s"),
        (59.6, "1 min 00 s"),
        (65, "1 min 05 s"),
        (3599.7, "1 h 00 min"),
        (7322, "2 h 02 min"),
        (-1.5, "-1.50 s"),
        (float("nan"), "n/a"),
    ],
)
def test_durations_suit_their_length(s, text):
    assert format_seconds(s) == text


@pytest.mark.parametrize(
    ("x", "signed", "text"),
    [
        (0.408, False, "40.8 %"),
        (0.013, True, "+1.3 %"),
        (-0.5, True, "-50.0 %"),
        (-0.00001, False, "0.0 %"),
        (float("inf"), False, "n/a"),
    ],
)
def test_a_percentage_has_one_decimal(x, signed, text):
    assert format_percent(x, signed=signed) == text
