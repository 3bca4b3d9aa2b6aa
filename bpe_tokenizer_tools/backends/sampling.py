"""How the next token is drawn, the same for every backend.

Logits are divided by the temperature; then top_k leaves the most likely ids; then top_p
leaves the fewest of these, most likely first, whose share of what is left reaches it;
then one is drawn, an id as often as its probability says.  Temperature 0 takes the most
likely id.  Of equally likely ids the lowest counts as more likely.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from bpe_tokenizer_tools.backends.checks import integer, real

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

_NUCLEUS = 1024  # ids that nearly always hold top_p of the probability; sorting all is slow


class Settings(NamedTuple):
    """How to draw; see `checked`."""

    temperature: float
    top_k: int
    top_p: float


def checked(temperature: float, top_k: int, top_p: float) -> Settings:
    """Check how to draw.

    Args:
        temperature: 0 or more.
        top_k: 0 for all.
        top_p: above 0, up to 1.
    """
    heat, share = real("temperature", temperature), real("top_p", top_p)
    if not 0 <= heat < math.inf:  # NaN fails this too
        raise ValueError(f"temperature must be 0 (most likely always) or more, got {heat}")
    if not 0 < share <= 1:
        raise ValueError(f"top_p must be above 0 and at most 1 (off), got {share}")
    return Settings(heat, integer("top_k", top_k, 0), share)


def generator(seed: int | None) -> numpy.random.Generator:
    """Make the source of chance for one answer."""
    import numpy

    return numpy.random.default_rng(seed)


def draw(logits: Array, settings: Settings, random: numpy.random.Generator) -> int:
    """Draw an id.

    Raises:
        RuntimeError: the logits are no numbers.
    """
    import numpy

    highest = logits.max()
    if not numpy.isfinite(highest):
        raise RuntimeError(
            f"the model computed {highest} where a number is expected: its weights are damaged, "
            "or too large for their type (try dtype='float32')"
        )
    if settings.temperature == 0:
        return int(logits.argmax())
    with numpy.errstate(over="ignore"):  # a tiny temperature leaves the most likely id alone
        weights = numpy.exp((logits.astype(numpy.float64) - highest) / settings.temperature)
    ids = _left(weights, settings)
    sums = weights[ids].cumsum()
    place = sums.searchsorted(random.random() * sums[-1], side="right")
    last = sums.searchsorted(sums[-1])  # rounding must not lead behind it
    return int(ids[min(place, last)])


def _left(weights: Array, settings: Settings) -> Array:
    """Return the ids that top_k and top_p leave, most likely first; by number if all are left."""
    import numpy

    limit = min(settings.top_k or len(weights), len(weights))
    if settings.top_p == 1:
        return numpy.arange(limit) if limit == len(weights) else _largest(weights, limit)
    whole = weights.sum() if limit == len(weights) else None
    ids = _largest(weights, limit if whole is None else min(limit, _NUCLEUS))
    sums = weights[ids].cumsum()
    wanted = settings.top_p * (sums[-1] if whole is None else whole)
    if sums[-1] < wanted:  # only if not all were looked at
        ids = _largest(weights, limit)
        sums = weights[ids].cumsum()
    left: Array = ids[: sums.searchsorted(wanted) + 1]
    return left


def _largest(weights: Array, count: int) -> Array:
    """Return the ids of the largest weights, largest first; of equals, the lowest first."""
    import numpy

    if count < len(weights):
        least = numpy.partition(weights, -count)[-count]
        ids = numpy.flatnonzero(weights >= least)
    else:
        ids = numpy.arange(len(weights))
    order = (-weights[ids]).argsort(kind="stable")[:count]
    largest: Array = ids[order]
    return largest
