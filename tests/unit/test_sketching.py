"""What is read back of a program: two runs that begin alike, and what its weights and its random layers change."""

import numpy as np
import pytest

from fwbench.frameworks.contract import CompileTimes, Program
from fwbench.meters import sketching
from fwbench.meters.sketching import DRAWS, of_inference, of_training
from fwbench.record.sketch import STEPS, UNIT, Sketch

RNG = np.random.default_rng(1)
X, Y = RNG.standard_normal((8, 5)), RNG.standard_normal(8)
WEIGHTS = {"w": RNG.standard_normal(5).astype(np.float32), "norm.running_mean": np.zeros(5, np.float32)}


class Regression(Program):
    """Least squares by gradient descent, in float64; all that is asked of it is in `log`.

    Args:
        dropout: the share of inputs that each step drops, at random.
        told: whether it tells its gradients.
    """

    def __init__(self, dropout=0.0, told=True):
        self.dropout, self.told = dropout, told
        self.settings, self.log, self.given = {}, [], []
        self.held = {name: array.astype(np.float64) for name, array in WEIGHTS.items()}
        self.draws = np.random.default_rng(99)

    def compile(self):
        return CompileTimes(None, None, "nothing is compiled")

    def restart(self, weights, draw=0):
        self.log.append(f"restart {draw}")
        self.given.append(weights)
        self.held = {name: array.astype(np.float64) for name, array in weights.items()}
        self.draws = np.random.default_rng(draw)

    def step(self):
        self.log.append("step")
        x = X * (self.draws.random(X.shape) >= self.dropout)
        error = x @ self.held["w"] - Y
        self.result = np.array([np.mean(error**2)])
        self.gradient = 2 * x.T @ error / len(x)
        self.held["w"] = self.held["w"] - 0.1 * self.gradient
        self.held["norm.running_mean"] = self.held["norm.running_mean"] + 0.1 * x.mean(0)

    def wait(self):
        self.log.append("wait")

    def output(self):
        self.log.append("output")
        return self.result

    def gradients(self):
        self.log.append("gradients")
        return {"w": self.gradient} if self.told else None

    def weights(self):
        return {name: array.astype(np.float32) for name, array in self.held.items()}

    def relocate(self):
        raise AssertionError


class Forward(Regression):
    def step(self):
        self.log.append("step")
        self.result = X @ self.held["w"]


class Fixed(Forward):
    """Cannot begin again."""

    def restart(self, weights, draw=0):
        return Program.restart(self, weights, draw)


def called(program):
    program.step()
    program.wait()
    program.log.clear()
    return program


def test_the_output_that_is_told_is_that_of_the_last_timed_call():
    program = called(Forward())
    expected = program.result
    found = of_inference(program, "fp32")
    assert found.keys() == {"output"}
    sketch = Sketch.from_json(found["output"])
    # Eight numbers fit into the slots, each with a sign.
    np.testing.assert_allclose(np.abs(sketch.slots[0]), np.abs(expected), rtol=1e-6)
    assert program.log == ["output", "restart 1", "step", "wait", "output"]


@pytest.mark.parametrize("precision", UNIT)
def test_every_weight_moves_by_some_units_and_the_output_by_what_comes_of_it(precision):
    program = called(Forward())
    before = program.result
    sketch = Sketch.from_json(of_inference(program, precision)["output"])
    (moved,) = program.given
    shares = moved["w"].astype(np.float64) / WEIGHTS["w"] - 1
    np.testing.assert_allclose(np.abs(shares), STEPS[precision] * UNIT[precision], rtol=0.3)
    assert {1, -1} == set(np.sign(shares))
    assert sketch.moved == pytest.approx(np.linalg.norm(program.result - before), rel=2**-6)
    assert moved["w"].dtype == np.float32


def test_a_program_that_cannot_begin_again_tells_its_output_without_a_movement():
    program = called(Fixed())
    sketch = Sketch.from_json(of_inference(program, "fp32")["output"])
    assert np.isnan(sketch.moved).all()
    assert np.linalg.norm(sketch.slots) == pytest.approx(np.linalg.norm(program.result), rel=1e-6)
    with pytest.raises(NotImplementedError):
        of_training(called(Fixed()), WEIGHTS, "fp32")


def test_training_steps_are_told_from_these_weights_on():
    program = called(Regression())
    for _ in range(7):
        called(program)
    found = of_training(program, WEIGHTS, "fp32")
    assert found.keys() == {"loss", "gradients", "updates", "statistics"}
    run = ["step", "wait", "output", "gradients"]
    assert program.log == ["restart 0", *run, "restart 1", *run]
    assert program.given[0] is WEIGHTS

    fresh = Regression()
    fresh.restart(WEIGHTS)
    fresh.step()
    first, gradient = fresh.result[0], fresh.gradient
    mean = fresh.held["norm.running_mean"]
    loss, gradients, updates, statistics = map(Sketch.from_json, found.values())
    np.testing.assert_allclose(np.abs(loss.slots), [[first]], rtol=1e-6)
    assert (gradients.names, updates.names, statistics.names) == (("w",), ("w",), ("norm.running_mean",))
    assert gradients.norms == pytest.approx(np.linalg.norm(gradient), rel=2**-7)
    assert updates.norms == pytest.approx(0.1 * np.linalg.norm(gradient), rel=2**-7)
    # Those after the step, not what it has added.
    assert statistics.norms == pytest.approx(np.linalg.norm(mean), rel=2**-7)
    assert (gradients.moved > 0).all()
    assert (updates.moved > 0).all()


def test_signs_are_the_same_whether_few_or_many_are_asked_for():
    row = np.random.default_rng(0).choice(np.array([-1, 1], np.float32), 2 * sketching._CHUNK)
    for first, count in ((0, 1), (1, 2), (2, 3), (999_999, 5000), (7, sketching._CHUNK)):
        np.testing.assert_array_equal(sketching._signs(first, count), row[first : first + count])


def test_what_a_lane_does_not_tell_is_left_out():
    without = {"w": WEIGHTS["w"], "norm.running_mean": WEIGHTS["norm.running_mean"]}
    assert of_training(Regression(told=False), without, "fp32").keys() == {"loss", "updates", "statistics"}

    class Plain(Regression):
        def step(self):
            self.held["norm.running_mean"] = 0.0
            super().step()

    found = of_training(Plain(), {"w": WEIGHTS["w"]}, "fp32")
    assert found.keys() == {"loss", "gradients", "updates"}


def test_a_random_step_tells_the_losses_of_several_draws_at_the_same_weights():
    program = Regression(dropout=0.5)
    draws = of_training(program, WEIGHTS, "fp32")["draws"]
    assert len(draws) == len(set(draws)) == DRAWS
    restarts = [entry for entry in program.log if entry.startswith("restart")]
    # The second run has moved weights and other numbers; then each draw once.
    assert restarts == ["restart 0", "restart 1", *(f"restart {draw}" for draw in range(1, DRAWS))]
    assert all(np.array_equal(given["w"], WEIGHTS["w"]) for given in program.given[2:])
    expected = []
    for draw in range(DRAWS):
        program.restart(WEIGHTS, draw)
        program.step()
        expected.append(program.result[0])
    assert draws == pytest.approx(expected, rel=1e-12)


def test_two_draws_with_almost_the_same_loss_are_told_by_their_gradients():
    """As those of MobileNetV3-Small in JAX, whose losses were by chance 1e-5 apart."""

    class Alike(Regression):
        def restart(self, weights, draw=0):
            super().restart(weights, draw)
            self.shift = 1 + 5e-6 * draw

        def step(self):
            super().step()
            self.result = self.shift * np.mean((X @ WEIGHTS["w"] - Y) ** 2, keepdims=True)

    assert len(of_training(Alike(dropout=0.5), WEIGHTS, "fp32")["draws"]) == DRAWS


def test_what_any_of_several_draws_moves_has_moved():
    """A layer that two draws leave alone by chance is hardly ever left alone by eight."""

    class Seldom(Regression):
        def restart(self, weights, draw=0):
            super().restart(weights, draw)
            self.held["norm.running_mean"] = np.float32(1.0 + (draw == 5))

        def step(self):
            kept = self.held["norm.running_mean"]
            super().step()
            self.held["norm.running_mean"] = kept

    statistics = Sketch.from_json(of_training(Seldom(dropout=0.5), WEIGHTS, "fp32")["statistics"])
    assert statistics.moved == pytest.approx([1.0], rel=2**-6)


def test_a_step_that_only_moves_far_is_not_random():
    """In bfloat16 a loss moves by more than a random layer may move it."""
    program = Regression()
    assert "draws" not in of_training(program, WEIGHTS, "bf16")
    assert [entry for entry in program.log if entry.startswith("restart")] == ["restart 0", "restart 1", "restart 1"]


def test_losses_are_means_over_all_ranks():
    whole, half = (of_training(Regression(), WEIGHTS, "fp32", mean=mean) for mean in (float, lambda loss: loss / 2))
    slots = [Sketch.from_json(found["loss"]).slots for found in (whole, half)]
    np.testing.assert_allclose(slots[1], slots[0] / 2, rtol=1e-6)


def folded(**results):
    return sketching._all_folded(results, lengths=True)


@pytest.mark.parametrize(("size", "within"), [(5, 1e-12), (768, 1e-12), (10**5, 0.08)])
@pytest.mark.parametrize("share", [1e-7, 1e-2, 1.0])
def test_an_error_is_the_distance_over_the_length_of_what_is_exact(size, within, share):
    exact = RNG.standard_normal(size)
    noise = RNG.standard_normal(size)
    found = sketching.errors(folded(output=exact + share * noise), folded(output=exact))
    assert found["output"] == pytest.approx(share * np.linalg.norm(noise) / np.linalg.norm(exact), rel=within)


def test_the_error_of_gradients_is_that_of_all_of_them_together():
    exact = {"large": RNG.standard_normal(500), "small": 1e-3 * RNG.standard_normal(400)}
    off = {"large": exact["large"], "small": 2 * exact["small"]}
    found = sketching.errors(folded(gradients=off), folded(gradients=exact))
    length = np.linalg.norm(np.concatenate([*exact.values()]))
    assert found == {"gradients": pytest.approx(np.linalg.norm(exact["small"]) / length, rel=1e-6)}


@pytest.mark.parametrize(("one", "exact"), [(np.nan, 1.0), (1.0, np.inf), (1.0, 0.0)])
def test_an_error_of_what_is_not_finite_or_zero_is_not_finite(one, exact):
    assert not np.isfinite(sketching.errors(folded(loss=np.array([one])), folded(loss=np.array([exact])))["loss"])


def test_arrays_of_other_names_or_sizes_have_no_error():
    loss = np.ones(1)
    for one, other in ((np.ones(3), np.ones(4)), ({"a": np.ones(3)}, {"b": np.ones(3)})):
        assert sketching.errors(folded(output=one, loss=loss), folded(output=other, loss=loss)) == {"loss": 0.0}


def test_a_file_of_folded_results_is_read_as_it_was_written(tmp_path):
    written = folded(output=RNG.standard_normal(1000), gradients={"a.b": np.ones(3), "c": np.zeros((2, 2))})
    sketching.write(str(tmp_path / "exact.npz"), written)
    read = sketching.read(str(tmp_path / "exact.npz"))
    assert read.keys() == written.keys()
    for name, each in written.items():
        assert (read[name].names, read[name].size) == (each.names, each.size)
        np.testing.assert_array_equal(read[name].slots, each.slots)
        np.testing.assert_array_equal(read[name].norms, each.norms)


def test_errors_are_of_the_first_step_and_of_the_output_before_weights_move():
    exact = sketching.folded_step(Regression(), WEIGHTS)
    assert of_training(called(Regression()), WEIGHTS, "bf16", exact=lambda: exact)["errors"] == {
        "loss": 0.0,
        "gradients": 0.0,
    }
    nearby = {**WEIGHTS, "w": WEIGHTS["w"] * np.float32(1.01)}
    found = of_training(called(Regression()), nearby, "bf16", exact=lambda: exact)["errors"]
    assert all(1e-4 < error < 0.1 for error in found.values())
    forward = called(Forward())
    exact = {"output": folded(output=forward.result * 1.5)["output"]}
    assert of_inference(forward, "bf16", exact=lambda: exact)["errors"] == {"output": pytest.approx(1 / 3)}
    assert "errors" not in of_inference(called(Forward()), "bf16")


def test_a_random_step_has_no_errors():
    exact = sketching.folded_step(Regression(), WEIGHTS)
    found = of_training(called(Regression(dropout=0.5)), WEIGHTS, "fp32", exact=lambda: exact)
    assert "draws" in found
    assert "errors" not in found
