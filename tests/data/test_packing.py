"""Laws of packing: nothing is cut, nothing exceeds, nothing is lost; and it is best-fit decreasing."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.data.finish import pack
from turnwise.errors import MessageError

capacities = st.integers(1, 70)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[int], int]:
    capacity = draw(capacities)
    return draw(st.lists(st.integers(1, capacity), max_size=60)), capacity


def pack_slowly(lengths: list[int], capacity: int) -> list[list[int]]:
    """Best-fit decreasing as the definition says; the last row that was used among those with equal space."""
    rows: list[list[int]] = []
    used: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        spaces = [(capacity - sum(lengths[i] for i in row), row) for row in rows]
        fitting = [space for space, _ in spaces if space >= lengths[index]]
        if not fitting:
            rows.append([index])
            used.append(len(rows) - 1)
            continue
        place = next(place for place in reversed(used) if spaces[place][0] == min(fitting))
        rows[place].append(index)
        used.append(place)
    return sorted(sorted(row) for row in rows)


@given(problems())
def test_no_sample_is_cut_lost_or_repeated_and_no_row_exceeds(
    problem: tuple[list[int], int],
) -> None:
    lengths, capacity = problem
    rows = pack(lengths, capacity)
    assert sorted(index for row in rows for index in row) == list(range(len(lengths)))
    assert all(sum(lengths[index] for index in row) <= capacity for row in rows)
    assert all(rows)


@given(problems())
def test_it_is_best_fit_decreasing(problem: tuple[list[int], int]) -> None:
    assert pack(*problem) == pack_slowly(*problem)


@given(problems())
def test_rows_and_samples_stay_in_their_order(problem: tuple[list[int], int]) -> None:
    rows = pack(*problem)
    assert rows == sorted(rows)
    assert all(row == sorted(row) for row in rows)


@given(problems())
def test_no_two_rows_could_be_one(problem: tuple[list[int], int]) -> None:
    lengths, capacity = problem
    sizes = sorted(sum(lengths[index] for index in row) for row in pack(lengths, capacity))
    assert len(sizes) < 2 or sizes[0] + sizes[1] > capacity


@pytest.mark.parametrize("capacity", [1, 7, 1000, 4095, 4096, 4097, 12_345])
def test_capacities_need_not_be_powers_of_two(capacity: int) -> None:
    assert pack([capacity] * 5, capacity) == [[index] for index in range(5)]
    if capacity > 1:
        assert pack([capacity - 1, 1], capacity) == [[0, 1]]


@given(st.integers(1, 40), st.integers(0, 50), st.integers(1, 200))
def test_equal_lengths_fill_every_row_but_one(length: int, count: int, capacity: int) -> None:
    if length > capacity:
        return
    rows = pack([length] * count, capacity)
    assert len(rows) == -(-count // (capacity // length))


def test_a_sample_longer_than_a_row_is_an_error() -> None:
    with pytest.raises(MessageError, match="sample 1 has 11 tokens, and a packed row at most 10"):
        pack([3, 11, 2], 10)


def test_nothing_gives_nothing() -> None:
    assert pack([], 10) == []


def test_time_grows_little_faster_than_the_number_of_samples() -> None:
    """Eight times the samples take about eight times the time, not sixty-four."""
    times = []
    for count in (5_000, 40_000):
        lengths = [1 + (index * 7919) % 4096 for index in range(count)]
        best = 9.0
        for _ in range(3):
            start = time.process_time()
            pack(lengths, 4096)
            best = min(best, time.process_time() - start)
        times.append(best)
    assert times[1] / times[0] < 24, times
