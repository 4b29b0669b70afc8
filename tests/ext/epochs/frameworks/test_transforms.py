"""The transforms beside torchvision's own."""

import math
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from torchvision import transforms as reference

from fwbench.ext.epochs.data import transforms

# scikit-learn's photographs, without the second that importing it takes.
PHOTOGRAPHS = Path(find_spec("sklearn").origin).parent / "datasets" / "images"
CHINA, FLOWER = (Image.open(PHOTOGRAPHS / f"{name}.jpg") for name in ("china", "flower"))
# Landscape, portrait, square, barely larger and smaller than the crop.
IMAGES = {
    "china": CHINA,
    "flower": FLOWER,
    "portrait": CHINA.transpose(Image.Transpose.ROTATE_90),
    "square": FLOWER.crop((100, 0, 401, 301)),
    "odd": FLOWER.resize((257, 259)),
    "small": CHINA.resize((99, 40)),
}
CROP = reference.RandomResizedCrop(224)
NORMALISE = reference.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
FINISH = reference.Compose([reference.PILToTensor(), reference.ConvertImageDtype(torch.float), NORMALISE])


def as_image(tensor):
    """Channels last, as ours."""
    return tensor.numpy().transpose(1, 2, 0)


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize(("size", "shorter"), [(224, 256), (32, 36)])
def test_evaluation_is_torchvisions(name, size, shorter):
    steps = reference.Compose([reference.Resize(shorter), reference.CenterCrop(size), FINISH])
    found = transforms.evaluation(IMAGES[name], size)
    assert found.dtype == np.float32
    assert found.shape == (size, size, 3)
    # A level of a pixel is 0.017 here: only the rounding of the arithmetic may differ.
    np.testing.assert_allclose(found, as_image(steps(IMAGES[name])), rtol=0, atol=1e-6)


def test_training_is_torchvisions_crop_and_mirror():
    mirrored = 0
    for seed in range(20):
        left, top, right, bottom = transforms.random_box(*CHINA.size, np.random.default_rng(seed))
        part = reference.functional.resized_crop(CHINA, top, left, bottom - top, right - left, [224, 224])
        expected = as_image(FINISH(part))
        found = transforms.train(CHINA, 224, np.random.default_rng(seed))
        assert found.shape == (224, 224, 3)
        if not np.allclose(found, expected, rtol=0, atol=1e-6):
            mirrored += 1
            np.testing.assert_allclose(found, expected[:, ::-1], rtol=0, atol=1e-6)
    assert 4 <= mirrored <= 16


def boxes(width, height, count):
    """Many random boxes: their share of the area, log of width over height, and place in the room they had."""
    rng = np.random.default_rng(0)
    found = np.array([transforms.random_box(width, height, rng) for _ in range(count)], float)
    return described(found, width, height)


def described(found, width, height):
    left, top, right, bottom = found.T
    w, h = right - left, bottom - top
    assert (left >= 0).all()
    assert (top >= 0).all()
    assert (right <= width).all()
    assert (bottom <= height).all()
    return {
        "area": w * h / (width * height),
        "ratio": np.log(w / h),
        "left": left / np.maximum(width - w, 1),
        "top": top / np.maximum(height - h, 1),
    }


def test_random_boxes_keep_to_the_documented_ranges_and_use_them():
    found = boxes(500, 500, 4000)
    # Sides are rounded to whole pixels, which moves area and ratio by up to 1 %.
    assert 0.08 * 0.99 <= found["area"].min() < 0.09
    assert 0.9 < found["area"].max() <= 1
    assert math.log(3 / 4) - 0.01 <= found["ratio"].min() < math.log(0.78)
    assert math.log(1.28) < found["ratio"].max() <= math.log(4 / 3) + 0.01
    for place in ("left", "top"):
        assert found[place].min() < 0.01
        assert found[place].max() > 0.99


def test_random_boxes_are_distributed_as_torchvisions():
    torch.manual_seed(0)
    image = Image.new("RGB", (640, 427))
    theirs = []
    for _ in range(4000):
        top, left, height, width = CROP.get_params(image, list(CROP.scale), list(CROP.ratio))
        theirs.append((left, top, left + width, top + height))
    expected, found = described(np.array(theirs, float), 640, 427), boxes(640, 427, 4000)
    # All samples are fixed by their seeds, so this passes always or never.
    assert {name: stats.ks_2samp(found[name], expected[name]).pvalue > 0.001 for name in found} == dict.fromkeys(
        ("area", "ratio", "left", "top"), True
    )


@pytest.mark.parametrize("size", [(1000, 10), (10, 1000)])
def test_where_no_random_box_fits_the_widest_central_one_is_taken(size):
    image = Image.new("RGB", size)
    top, left, height, width = CROP.get_params(image, list(CROP.scale), list(CROP.ratio))
    found = transforms.random_box(*size, np.random.default_rng(0))
    assert found == (left, top, left + width, top + height)


def test_an_image_of_one_pixel_can_be_cropped():
    assert transforms.random_box(1, 1, np.random.default_rng(0)) == (0, 0, 1, 1)
