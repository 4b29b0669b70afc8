"""scikit-learn's bundled handwritten digits: real, small and offline."""

import numpy as np

from fwbench.data.grey import Grey
from fwbench.models import Model


def digits(model: Model, seed: int) -> Grey:
    """1,797 images of 8 x 8 pixels with 17 levels (E. Alpaydin and C. Kaynak, UCI, 1998; its test set)."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    pixels = bunch.images.astype(np.uint8)
    return Grey("digits", pixels, bunch.target, model, seed, brightest=16, source="scikit-learn's digits")
