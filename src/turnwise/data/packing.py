"""Pack samples into rows of at most `capacity` tokens: best-fit decreasing, and no sample is ever cut.

Samples are taken from the longest to the shortest, and each goes into the row in which the least space remains. That
never needs more than 11/9 of the fewest possible rows, plus a constant (Johnson 1973).

Rows are found by their free space: a sorted list has the spaces that occur, a table the rows of each. So a sample costs
one binary search, and the whole O(n log n).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from turnwise.errors import MessageError


def pack(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Return the rows, each as the indices of its samples.

    The result depends on the lengths alone. Rows are in the order of their first samples, and the samples of a row in
    the order that they were given, so that a shuffled data set remains shuffled.

    Args:
        lengths: the number of tokens of each sample.
        capacity: the most tokens of a row.

    Raises:
        MessageError: a sample has more tokens than a row.

    Example:
        >>> pack([6, 5, 4, 3], 10)
        [[0, 2], [1, 3]]
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])  # stable
    if order and lengths[order[0]] > capacity:
        problem = (
            f"sample {order[0]} has {lengths[order[0]]} tokens, and a packed row at most {capacity}"
        )
        raise MessageError(problem, hint="leave out or split long conversations first: overlong")
    rows: list[list[int]] = []
    rows_with: dict[int, list[int]] = {}  # rows by their free space
    spaces: list[int] = []  # those spaces, sorted
    for index in order:
        length = lengths[index]
        place = bisect_left(spaces, length)
        if place == len(spaces):
            row, space = len(rows), capacity
            rows.append([])
        else:
            space = spaces[place]
            row = rows_with[space].pop()
            if not rows_with[space]:
                del rows_with[space], spaces[place]
        rows[row].append(index)
        left = space - length
        if left not in rows_with:
            rows_with[left] = []
            insort(spaces, left)
        rows_with[left].append(row)
    for row_samples in rows:
        row_samples.sort()
    return sorted(rows)
