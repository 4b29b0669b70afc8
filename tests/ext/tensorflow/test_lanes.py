"""TensorFlow's lanes, and the networks of the suite's models that they bring."""

from fwbench.ext.tensorflow.lanes import LANES
from fwbench.models import CATALOG, Model
from fwbench.models.project import complete
from fwbench.models.store import of_suite
from fwbench.record import lanes
from tests.proving import MODELS


def test_a_profile_measures_them_if_a_model_names_a_network_in_tensorflow():
    assert lanes.of_profile("quick", "cpu", {"torch", "tensorflow"}) == ("torch", "tensorflow")
    assert lanes.of_profile("quick", "gpu", {"tensorflow"}) == ("tensorflow", "tensorflow-xla")


def test_one_of_them_is_proved():
    assert [lane.name for lane in LANES if lane.parity] == ["tensorflow"]


def test_each_model_of_the_suite_without_a_state_has_a_network():
    assert {lane.networks.keys() == {*MODELS} for lane in LANES} == {True}
    assert all(of_suite(complete(CATALOG[name]), "tensorflow") for name in MODELS)


def test_another_network_of_the_suites_model_is_not_the_suites():
    own = CATALOG["mlp"].to_json()
    model = complete(Model.from_json({**own, "networks": {**own["networks"], "tensorflow": "mine:MLP"}}))
    assert [framework for framework in model.networks if of_suite(model, framework)] == ["torch", "jax"]
