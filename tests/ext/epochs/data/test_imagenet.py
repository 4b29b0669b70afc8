"""ImageNet-100's schema on a small local parquet data set of real JPEGs."""

import io
import os
import signal
import sys
import threading

import numpy as np
import pytest
from PIL import Image

from fwbench.ext.epochs.data import DataError, digest, open_data, transforms
from fwbench.ext.epochs.data.imagenet import ImageReader, default_processes
from fwbench.models import CATALOG
from tests.ext.epochs.data.conftest import PHOTOGRAPHS, ROWS
from tests.ext.epochs.data.processes import loaders, within_a_minute
from tests.unit.shared import finish

MODEL = CATALOG["cnn"]


@pytest.fixture
def open_small(imagenet_folder):
    """Open the small data set; whatever a test opens is closed and leaves no process."""
    opened = []

    def open_small(path=imagenet_folder, model=MODEL, processes=0, **options):
        opened.append(open_data("imagenet-100", model, path=str(path), processes=processes, **options))
        return opened[-1]

    yield open_small
    for data in opened:
        data.close()
    if sys.platform == "linux":
        assert loaders(os.getpid()) == []


def digests(data):
    return [digest(data.batches("train", 4, epoch)) for epoch in (0, 1)] + [digest(data.batches("validation", 4))]


@pytest.mark.slow
def test_no_bit_depends_on_the_number_of_processes(open_small):
    expected = digests(open_small(seed=5))
    assert len(set(expected)) == 3
    for processes in (1, 2):
        assert digests(open_small(seed=5, processes=processes, prefetch=processes)) == expected


ELSEWHERE = """
import sys
from fwbench.ext.epochs.data import digest, open_data
from fwbench.models import CATALOG

with open_data("imagenet-100", CATALOG["cnn"], path=sys.argv[1], seed=5, processes=1) as data:
    print(digest(data.batches("train", 4, 1)))
    print([name for name in ("torch", "jax", "tensorflow", "flax") if name in sys.modules])
"""


@pytest.mark.slow
def test_another_process_sees_the_same_batches_and_needs_no_framework(open_small, imagenet_folder):
    run = finish(sys.executable, "-c", ELSEWHERE, imagenet_folder, timeout=120, check=True)
    assert run.stdout.splitlines() == [digest(open_small(seed=5).batches("train", 4, 1)), "[]"]


def test_validation_is_the_files_images_transformed(open_small, jpegs, labels):
    data = open_small()
    assert data.sizes == ROWS
    assert data.classes == 4
    batches = list(data.batches("validation", 4))
    x, y = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    assert y.tolist() == [*labels["validation"], -1]
    assert not x[7].any()
    for row, file in enumerate(jpegs["validation"]):
        image = Image.open(io.BytesIO(file)).convert("RGB")
        np.testing.assert_array_equal(x[row], transforms.evaluation(image, 32))
    assert Image.open(io.BytesIO(jpegs["validation"][3])).mode == "L"
    assert len(PHOTOGRAPHS) == 2


def test_training_crops_each_image_anew_in_each_epoch(open_small):
    data = open_small()
    crops = {}
    for epoch in (0, 1):
        for x, y in data.batches("train", 14, epoch):
            assert sorted(y.tolist()) == sorted(row % 4 for row in range(14))
            crops[epoch] = {sample.tobytes() for sample in x}
    assert len(crops[0] | crops[1]) == 28


def test_a_crop_depends_on_seed_epoch_and_row_alone():
    noise = np.random.default_rng(0).integers(256, size=(300, 400, 3), dtype=np.uint8)
    rows = {"train": [{"image": Image.fromarray(noise)}] * 3}

    def crop(seed, epoch, row):
        return ImageReader("somewhere", rows, 32, seed)("train", epoch, row).tobytes()

    places = [(seed, epoch, row) for seed in range(3) for epoch in range(3) for row in range(3)]
    crops = {place: crop(*place) for place in places}
    assert len(set(crops.values())) == 27
    assert {place: crop(*place) for place in reversed(places)} == crops


def test_a_seed_changes_training_alone(open_small):
    one, other = digests(open_small(seed=0)), digests(open_small(seed=1))
    assert [first != second for first, second in zip(one, other, strict=True)] == [True, True, False]


def test_plain_parquet_without_hugging_faces_words_is_read_alike(open_small, tmp_path, write_parquet, jpegs, labels):
    plain = write_parquet(tmp_path / "plain", jpegs, labels, declared=None)
    data = open_small(plain)
    assert data.classes == 4
    assert digests(data) == digests(open_small())


def test_models_of_the_studies_get_their_224_pixels(open_small):
    x, _ = next(open_small(model=CATALOG["resnet50"]).batches("train", 2))
    assert x.shape == (2, 224, 224, 3)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system pins no processes")
@pytest.mark.parametrize(("available", "expected"), [(1, 1), (2, 1), (9, 8), (64, 16)])
def test_the_consumer_keeps_a_cpu_of_those_it_may_use(monkeypatch, available, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(available)))
    assert default_processes() == expected


@pytest.mark.parametrize("shape", [(784,), (32, 32, 1), (32, 24, 3)])
def test_a_model_that_takes_no_square_colour_images_is_refused(open_small, shaped, shape):
    with pytest.raises(DataError, match="imagenet-100 cannot be fitted to other's input of shape"):
        open_small(model=shaped(*shape))


@pytest.mark.parametrize(
    ("damage", "processes"),
    [
        (lambda file: file[: len(file) // 2], 0),
        (lambda file: file[: len(file) // 2], 1),
        (lambda file: b"no image", 0),
        (lambda file: b"", 0),
        (lambda file: None, 0),
    ],
    ids=["truncated", "truncated, in a loader", "something else", "empty", "missing"],
)
def test_a_corrupt_image_is_named_by_its_row(open_small, tmp_path, write_parquet, jpegs, labels, damage, processes):
    files = {split: list(images) for split, images in jpegs.items()}
    files["validation"][6] = damage(files["validation"][6])
    folder = write_parquet(tmp_path / "damaged", files, labels, declared=None)
    expected = f"{folder}: the image in row 6 of split 'validation' cannot be decoded"
    data = open_small(folder, processes=processes)
    with pytest.raises(DataError, match=expected):
        list(data.batches("validation", 4))
    # The rest of the data is as good as before.
    assert digest(data.batches("train", 4)) == digests(open_small())[0]


def refused(path):
    """The sentence with which the path is refused."""
    with pytest.raises(DataError) as caught:
        open_data("imagenet-100", MODEL, path=str(path))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("label", "declared"), [(4, None), (-1, None), (-1, 4)])
def test_a_label_out_of_range_is_named_by_its_row(tmp_path, write_parquet, jpegs, labels, label, declared):
    """Where the schema declares the classes, `datasets` itself refuses a 4, but takes -1 for "no label"."""
    wrong = {**labels, "validation": [*labels["validation"][:5], label, 0]}
    folder = write_parquet(tmp_path / "wrong", jpegs, wrong, declared)
    assert f"{folder}, split 'validation': label {label} of sample 5 is out of range 0 to 3" in refused(folder)


@pytest.mark.parametrize("wrong", [[0, None, 0, 0, 0, 0, 0], [0.5] * 7, list("abcdefg")])
def test_labels_that_are_no_whole_numbers_are_refused(tmp_path, write_parquet, jpegs, labels, wrong):
    folder = write_parquet(tmp_path / "wrong", jpegs, {**labels, "validation": wrong}, declared=None)
    assert str(folder) in (sentence := refused(folder))
    assert "label" in sentence


def test_a_parquet_file_that_is_not_whole_is_named(tmp_path, write_parquet, jpegs, labels):
    folder = write_parquet(tmp_path / "truncated", jpegs, labels)
    path = folder / "data" / "validation-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes()[:-50])
    assert f"{path} cannot be loaded" in refused(folder)


@pytest.mark.parametrize("name", ["{}/nobody/nothing", "{}/nothing here", "nobody/nothing"])
def test_what_is_not_there_or_cannot_be_reached_on_the_hub_is_named(tmp_path, name):
    sentence = refused(name.format(tmp_path))
    assert sentence.startswith(f"{name.format(tmp_path)} cannot be loaded")
    assert "such as clane9/imagenet-100" in sentence


def test_a_missing_split_and_a_missing_column_are_named(tmp_path, write_parquet, jpegs, labels):
    only = write_parquet(tmp_path / "only", {"train": jpegs["train"]}, labels)
    assert f"{only} cannot be loaded (KeyError: 'validation')" in refused(only)
    import pyarrow.parquet

    other = write_parquet(tmp_path / "other", jpegs, labels, declared=None)
    for path in (other / "data").iterdir():
        pyarrow.parquet.write_table(pyarrow.parquet.read_table(path).rename_columns(["picture", "label"]), path)
    assert "image" in refused(other).partition("name a folder")[0]


def test_what_to_install_is_said(monkeypatch, imagenet_folder):
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert refused(imagenet_folder) == (
        f"imagenet-100 needs datasets, which is not installed in {sys.executable}: pip install 'fwbench[imagenet]'"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
class TestProcesses:
    @pytest.mark.slow
    def test_one_set_of_processes_serves_pass_after_pass(self, open_small):
        data = open_small(processes=2)
        assert loaders(os.getpid()) == []
        list(data.batches("train", 4))
        pids = loaders(os.getpid())
        assert len(pids) == 2
        # An abandoned pass costs no processes either.
        batches = data.batches("train", 4, 1)
        next(batches)
        batches.close()
        list(data.batches("validation", 4))
        assert loaders(os.getpid()) == pids
        # Another batch size needs other memory.
        list(data.batches("validation", 3))
        others = loaders(os.getpid())
        assert len(others) == 2
        assert not set(others) & set(pids)

    @pytest.mark.slow
    def test_two_open_iterators_do_not_disturb_each_other(self, open_small):
        data, expected = open_small(processes=1), open_small()
        pairs = list(zip(data.batches("train", 4), data.batches("train", 4, 1), strict=True))
        assert digest(first for first, _ in pairs) == digest(expected.batches("train", 4))
        assert digest(second for _, second in pairs) == digest(expected.batches("train", 4, 1))

    @pytest.mark.slow
    def test_closing_halfway_leaves_no_process(self, open_small):
        data = open_small(processes=2)
        batches = data.batches("train", 4)
        next(batches)
        assert len(loaders(os.getpid())) == 2
        data.close()
        assert loaders(os.getpid()) == []
        with pytest.raises(DataError, match="imagenet-100 was closed while"):
            list(batches)

    @pytest.mark.slow
    def test_a_killed_process_is_reported_and_the_data_can_be_read_again(self, open_small):
        data = open_small(processes=2, prefetch=1)
        batches = data.batches("train", 4)
        next(batches)
        for pid in loaders(os.getpid()):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(DataError, match="imagenet-100: a loader process was killed by SIGKILL"):
            within_a_minute(lambda: list(batches))
        assert loaders(os.getpid()) == []
        assert digest(data.batches("train", 4)) == digests(open_small())[0]

    def test_a_thread_may_read_while_another_closes(self, open_small):
        data = open_small(processes=1)
        begun, ended = threading.Event(), threading.Event()

        def read():
            for epoch in range(10**6):
                for _ in data.batches("train", 4, epoch):
                    begun.set()

        def close():
            assert begun.wait(60)
            # It may be between two passes, and then starts anew.
            while not ended.is_set():
                data.close()

        closing = threading.Thread(target=close)
        closing.start()
        with pytest.raises(DataError, match="imagenet-100 was closed while"):
            within_a_minute(read)
        ended.set()
        closing.join()
