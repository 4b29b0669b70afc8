"""Whose convolutions the PyTorch lanes say that they compute with, beside what PyTorch's profiler saw."""

import pytest
import torch

import fwbench
from fwbench.frameworks.torch.convolutions import ONE_THREAD, Convolutions
from fwbench.record.workload import Workload
from tests.programs import built


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def convolution(kernel, batch=2, channels=64):
    module = torch.nn.Conv2d(channels, channels, kernel).to(memory_format=torch.channels_last)
    images = torch.zeros(batch, channels, 14, 14).to(memory_format=torch.channels_last)
    return lambda: module(images)


def asked(call):
    with torch.no_grad(), Convolutions() as found:
        call()
    return found.settings


def seen(call):
    """The names of the kernels that have run."""
    with torch.no_grad(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    return {event.key for event in profile.key_averages()}


def test_the_number_of_threads_decides_who_computes_a_1x1_convolution(threads):
    call = convolution(1)
    threads(2)
    assert asked(call) == {"convolutions": "oneDNN 1"}
    assert "aten::mkldnn_convolution" in seen(call)
    threads(1)
    assert asked(call) == {"convolutions": "PyTorch's own 1", "caution": ONE_THREAD}
    assert "aten::_slow_conv2d_forward" in seen(call)
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize(
    ("shape", "who"), [({"kernel": 3}, "oneDNN"), ({"kernel": 1, "batch": 1, "channels": 8}, "PyTorch's own")]
)
def test_what_another_thread_would_not_change_needs_no_caution(threads, number, shape, who):
    threads(number)
    assert asked(convolution(**shape)) == {"convolutions": f"{who} 1"}
    assert torch.get_num_threads() == number


def test_no_convolution_no_setting(threads):
    threads(1)
    assert asked(lambda: torch.ones(2, 2) @ torch.ones(2, 2)) == {}


class Pointwise(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Conv2d(64, 64, 1), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())


@pytest.mark.parametrize("mode", ["inference", "train_step"])
def test_a_program_says_it_on_its_record(threads, monkeypatch, mode):
    model = fwbench.Model("pointwise", torch=f"{__name__}:Pointwise", inputs=fwbench.image(14, 14, 64))
    told = []
    for count in ("1", "2"):
        monkeypatch.setenv("OMP_NUM_THREADS", count)
        program, _ = built(Workload("torch", model.name, mode, 2), model)
        with program.session():
            digest = program.fingerprint().digest
        told.append((digest, program.settings["convolutions"], program.settings.get("caution")))
    (one, few, caution), (same, many, none) = told
    assert one == same
    assert few != many
    assert (caution, none) == (ONE_THREAD, None)
