"""Sources by name, and that another process sees the same."""

import sys

import pytest

from fwbench.ext.epochs.data import DataError, digest, open_data
from fwbench.models import CATALOG
from fwbench.record.workload import DATA
from tests.unit.shared import finish

FRAMEWORKS = ("torch", "jax", "tensorflow", "flax")

DIGESTS = f"""
import sys
from fwbench.ext.epochs.data import digest, open_data
from fwbench.models import CATALOG
from fwbench.record.workload import DATA

for name, model in (("digits", "mlp"), ("digits", "cnn"), ("synthetic", "cnn")):
    with open_data(name, CATALOG[model], seed=3) as data:
        print(digest(data.batches("train", 64, epoch=2)), digest(data.batches("test", 64)))
print([name for name in {FRAMEWORKS} if name in sys.modules])
"""


def test_another_process_sees_the_same_batches_and_needs_no_framework():
    run = finish(sys.executable, "-c", DIGESTS, timeout=120, check=True)
    *digests, frameworks = run.stdout.splitlines()
    expected = []
    for name, model in (("digits", "mlp"), ("digits", "cnn"), ("synthetic", "cnn")):
        with open_data(name, CATALOG[model], seed=3) as data:
            expected.append(f"{digest(data.batches('train', 64, epoch=2))} {digest(data.batches('test', 64))}")
    assert digests == expected
    assert len(set(digests)) == 3
    assert frameworks == "[]"


def test_importing_the_data_imports_no_library_that_a_source_may_not_need():
    code = "import sys, fwbench.ext.epochs.data; print([n for n in ('sklearn', 'PIL', 'datasets') if n in sys.modules])"
    run = finish(sys.executable, "-c", code, timeout=60, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize("name", DATA)
def test_every_source_says_its_own_name(name, mnist_folder, imagenet_folder):
    path = {"mnist": str(mnist_folder), "imagenet-100": str(imagenet_folder)}.get(name)
    with open_data(name, CATALOG["cnn"], path=path) as data:
        assert data.name == name
        x, y = next(data.batches("train", 4))
        assert x.shape == (4, 32, 32, 3)
        assert y.shape == (4,)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("cifar", {}, "unknown data 'cifar': choose from digits, mnist, imagenet-100, synthetic"),
        ("digits", {"path": "here"}, "digits takes no data_path, but was given 'here'"),
        ("digits", {"seed": -1}, "seed -1 is out of range 0 to 4294967295"),
        ("mnist", {}, "mnist needs data_path: name the folder that holds its four IDX files"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(name, options, sentence):
    with pytest.raises(DataError, match=sentence):
        open_data(name, CATALOG["mlp"], **options)


def test_a_model_with_too_few_classes_is_refused(shaped):
    with pytest.raises(DataError, match="digits has 10 classes and other only 9: choose a model with at least as many"):
        open_data("digits", shaped(784, classes=9))


def test_a_model_with_more_classes_is_served(shaped):
    with open_data("digits", shaped(784, classes=1000)) as data:
        assert data.classes == 10
