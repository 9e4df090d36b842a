"""How far a result may be from the one computed in float64: from the dtype's epsilon and the number of terms."""

from __future__ import annotations

import math

EPSILON = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float8_e4m3fn": 2.0**-3,
}
WINOGRAD = 16


def tolerance(dtype: str, terms: int = 1, margin: int = 1) -> float:
    """Give the greatest error, relative to the sum of the magnitudes of what was added.

    4 ε(dtype) for rounding what goes in and comes out, and 4 √terms ε(float32) for adding ``terms`` products in
    float32, whose errors grow like a random walk; ``margin`` for algorithms that add in another order.
    """
    return margin * (4 * EPSILON[dtype] + 4 * math.sqrt(terms) * EPSILON["float32"])
