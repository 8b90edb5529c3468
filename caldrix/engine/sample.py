"""Choosing a token from logits: pure functions over one row."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from caldrix.protocol.messages import Sampling

Row = NDArray[np.float32]


def log_softmax(row: Row) -> NDArray[np.float64]:
    """Log-probabilities of one row; -inf stays -inf."""
    wide = row.astype(np.float64)
    wide -= wide.max()
    result: NDArray[np.float64] = wide - np.log(np.exp(wide).sum())
    return result


def penalise(row: Row, seen: Iterable[int], penalty: float) -> Row:
    """The repetition penalty of CTRL (Keskar et al. 2019): logits of seen tokens shrink towards refusal."""
    ids = np.fromiter(set(seen), dtype=np.int64)
    if penalty == 1.0 or not ids.size:
        return row
    out = row.copy()
    picked = out[ids]
    out[ids] = np.where(picked > 0, picked / penalty, picked * penalty)
    return out


def choose(row: Row, sampling: Sampling, random: np.random.Generator) -> int:
    """A token of the row. Temperature 0: the largest logit, the lowest id of equals."""
    if sampling.temperature == 0:
        return int(row.argmax())
    wide = row.astype(np.float64)
    with np.errstate(over="ignore"):  # a temperature next to 0 sends all but the largest to -inf
        wide = (wide - wide.max()) / sampling.temperature
    shares = np.exp(wide)
    probabilities = _cut(shares / shares.sum(), sampling)
    # Inverse transform over the sorted candidates, so that one draw is used whatever the vocabulary's size.
    order = np.argsort(-probabilities, kind="stable")
    cumulative = np.cumsum(probabilities[order])
    place = int(np.searchsorted(cumulative, random.random() * cumulative[-1], side="right"))
    return int(order[min(place, int((probabilities > 0).sum()) - 1)])


def _cut(probabilities: NDArray[np.float64], sampling: Sampling) -> NDArray[np.float64]:
    """Zero what top_k, top_p (Holtzman et al. 2019) and min_p (Nguyen et al. 2024) leave out; the best one stays."""
    keep = np.ones(probabilities.shape, dtype=bool)
    if sampling.min_p > 0:
        keep &= probabilities >= sampling.min_p * probabilities.max()
    if sampling.top_k or sampling.top_p < 1:
        order = np.argsort(-probabilities, kind="stable")
        ranks = np.empty_like(order)
        ranks[order] = np.arange(order.size)
        if sampling.top_k:
            keep &= ranks < sampling.top_k
        if sampling.top_p < 1:
            before = np.cumsum(probabilities[order]) - probabilities[order]
            keep &= (before < sampling.top_p)[ranks]
    keep[int(probabilities.argmax())] = True
    return np.where(keep, probabilities, 0.0)
