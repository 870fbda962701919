"""Timing of a stream's increments in bounded memory."""

from __future__ import annotations

import math

from kvv.core import Timing

#: buckets per octave: a quantile is off by at most half a bucket, 2.2 %
_PER_OCTAVE = 16
#: gaps below this many milliseconds are one read of the socket
_FLOOR_MS = 0.01
_BUCKETS = 32 * _PER_OCTAVE
_FOLD_EVERY = 256


class IncrementTiming:
    """Gaps between increments in a histogram of fixed size with geometric buckets; the largest gap is exact."""

    __slots__ = ("_buckets", "_largest", "_last_ms", "_moments", "first_byte_ms", "first_ms", "increments")

    def __init__(self) -> None:
        self._buckets = [0] * (_BUCKETS + 1)
        self._largest = 0.0
        self.first_byte_ms: float | None = None
        self.first_ms: float | None = None
        self.increments = 0
        self._last_ms = 0.0
        #: not yet counted; folding a few hundred at once costs a third of folding each
        self._moments: list[float] = []

    def tick(self, offset_ms: float, count: int) -> None:
        """``count`` increments were read at this moment."""
        moments = self._moments
        moments.append(offset_ms)
        self.increments += count
        if len(moments) >= _FOLD_EVERY:
            self._fold()

    def _fold(self) -> None:
        moments, buckets, log2 = self._moments, self._buckets, math.log2
        if not moments:
            return
        if self.first_ms is None:
            self.first_ms = self._last_ms = moments.pop(0)
        last = self._last_ms
        for moment in moments:
            gap = moment - last
            last = moment
            if gap > self._largest:
                self._largest = gap
            if gap >= _FLOOR_MS:
                buckets[min(1 + int(_PER_OCTAVE * log2(gap / _FLOOR_MS)), _BUCKETS)] += 1
        self._last_ms = last
        moments.clear()

    def timing(self, total_ms: float) -> Timing:
        self._fold()
        gaps = self.increments - 1
        # what is in no other bucket came together with the one before it
        self._buckets[0] = max(gaps, 0) - sum(self._buckets[1:])
        return Timing(
            first_byte_ms=self.first_byte_ms,
            first_token_ms=self.first_ms,
            total_ms=total_ms,
            increments=self.increments,
            itl_p50_ms=self._quantile(0.50) if gaps > 0 else None,
            itl_p99_ms=self._quantile(0.99) if gaps > 0 else None,
            max_gap_ms=self._largest if gaps > 0 else None,
        )

    def _quantile(self, q: float) -> float:
        """The value at rank ``ceil(q * n)``, as the geometric middle of its bucket."""
        rank = math.ceil(q * sum(self._buckets))
        for bucket, count in enumerate(self._buckets):
            rank -= count
            if rank <= 0:
                middle = 0.0 if bucket == 0 else _FLOOR_MS * 2 ** ((bucket - 0.5) / _PER_OCTAVE)
                return min(middle, self._largest)
        return self._largest
