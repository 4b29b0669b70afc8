"""torchvision's reference transforms for ImageNet, with Pillow and NumPy alone.

After torchvision's references/classification/presets.py (bilinear, Pillow backend) and
transforms.RandomResizedCrop.get_params; the tests hold them against torchvision.
"""

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image

# Mean and standard deviation of ImageNet's RGB channels, for pixels scaled to [0, 1].
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)

# The random crop's share of the image's area, and its width over its height.
SCALE = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
_ATTEMPTS = 10

Box = tuple[int, int, int, int]


def train(image: Image.Image, size: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """A random part of an RGB image, resized to a square, mirrored half of the time, normalised.

    Returns:
        float32 of shape (size, size, 3).
    """
    part = image.crop(random_box(*image.size, rng)).resize((size, size), Image.Resampling.BILINEAR)
    if rng.random() < 0.5:
        part = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return _normalised(part)


def evaluation(image: Image.Image, size: int) -> NDArray[np.float32]:
    """The centre of an RGB image: its shorter side resized to 256/224 of `size`, then cut square and normalised.

    Returns:
        float32 of shape (size, size, 3).
    """
    width, height = image.size
    shorter = size * 256 // 224
    if width <= height:
        width, height = shorter, int(shorter * height / width)
    else:
        width, height = int(shorter * width / height), shorter
    left, top = round((width - size) / 2), round((height - size) / 2)
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
    return _normalised(resized.crop((left, top, left + size, top + size)))


def random_box(width: int, height: int, rng: np.random.Generator) -> Box:
    """A crop with random area and shape (left, top, right, bottom), or the widest central one where none fits."""
    for _ in range(_ATTEMPTS):
        area = width * height * rng.uniform(*SCALE)
        ratio = math.exp(rng.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            top, left = int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1))
            return left, top, left + w, top + h
    w = min(width, round(height * RATIO[1]))
    h = min(height, round(width / RATIO[0]))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def _normalised(image: Image.Image) -> NDArray[np.float32]:
    pixels = np.array(image, np.float32)
    # Row by row, as broadcasting over three channels takes NumPy four times as long.
    rows = pixels.reshape(image.height, -1)
    rows /= np.float32(255)
    rows -= np.tile(MEAN, image.width)
    rows /= np.tile(DEVIATION, image.width)
    return pixels
