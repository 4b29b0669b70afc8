"""Which files and versions a proof depends on, how it is kept, and what a record says of it."""

import dataclasses
import sys

import pytest

import fwbench
from fwbench.models import CATALOG, store
from fwbench.models.sources import _digest, sources
from fwbench.models.store import Key, Nearest, Proved, stamp
from fwbench.record.reading import PROOFS, runs
from tests.unit.shared import finish


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder of modules, as a worker puts it on the path; returns what writes one."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(**modules):
        for name, text in modules.items():
            path = tmp_path / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


MODEL = fwbench.Model("mine", torch="zoo.torch_net:Net", jax="zoo.jax_net:Net", inputs=fwbench.normal(4))


@pytest.fixture
def networks(project):
    (project() / "zoo").mkdir()
    (project() / "zoo" / "__init__.py").write_text("from . import names\n")
    return project(
        zoo__names="",
        zoo__torch_net="import torch\n",
        zoo__jax_net="from zoo.deep.blocks import Block\n\n\ndef late():\n    from .. import zoo\n    import table\n",
        zoo__deep__blocks="from ..names import X\nimport flax\n",
        table="",
        zoo__other="",
    )


def test_sources_follow_every_import_statement_within_the_project(networks):
    found = sources(["zoo.jax_net:Net"])
    assert list(found.files) == ["table", "zoo", "zoo.deep.blocks", "zoo.jax_net", "zoo.names"]
    assert found.distributions == ("flax",)


@pytest.mark.parametrize("edited", ["table", "zoo", "zoo/deep/blocks", "zoo/jax_net", "zoo/names"])
def test_an_edited_source_has_another_digest(networks, edited):
    before = sources(["zoo.jax_net:Net"]).files
    path = networks / edited
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    path.write_text(f"{path.read_text()}\nEDITED = 1\n")
    after = sources(["zoo.jax_net:Net"]).files
    assert [name for name in before if before[name] != after[name]] == [edited.replace("/", ".")]


WRITTEN = """
class Net:
    def __call__(self, x, *, scale=0.5):
        return f"{x:>{9}}" if scale < 1 else -x
"""


@pytest.mark.parametrize(
    ("again", "same"),
    [
        (f"# A comment.\n{WRITTEN}", True),
        (WRITTEN.replace("Net:\n", 'Net:\n    """Documented."""\n\n'), True),
        (f'"""A module."""\n{WRITTEN}', True),
        (
            WRITTEN.replace("scale < 1", "(scale\n            < 1)")
            .replace("return ", "return (")
            .replace("-x", "-x)"),
            True,
        ),
        (WRITTEN.replace("0.5", "0.25"), False),
        (WRITTEN.replace("0.5", "'0.5'"), False),
        (WRITTEN.replace("<", "<="), False),
        (WRITTEN.replace("-x", "+x"), False),
        (WRITTEN.replace("*, ", ""), False),
        (WRITTEN.replace("scale", "scales"), False),
        (f"{WRITTEN}\n'an expression that documents nothing'", False),
        ("def", False),
    ],
)
def test_comments_docstrings_and_layout_have_no_part_in_a_digest(again, same):
    assert (_digest(again.encode()) == _digest(WRITTEN.encode())) is same


def test_a_digest_is_the_same_under_every_python():
    assert _digest(WRITTEN.encode()) == "326ad26baa83c6db"


@pytest.mark.parametrize("text", ["a = '\0'", "(" * 9999, "+".join("a" * 9999)], ids=["null", "brackets", "terms"])
def test_a_source_that_nothing_parses_has_a_digest(networks, text):
    (networks / "table.py").write_text(text)
    assert sources(["zoo.jax_net:Net"]).files["table"] != _digest(b"")


def test_an_installed_network_stands_for_its_version():
    found = sources(["torchvision.models:resnet50"])
    assert (found.files, found.distributions) == ({}, ("torchvision",))


def test_a_module_that_is_not_there_is_left_out(project):
    project(broken="def (:\n")
    assert sources(["nowhere.net:Net", "broken:Net"]).files.keys() == {"broken"}


def test_of_fwbench_a_network_depends_on_networks_alone():
    """The adapters are how a lane runs a network: measured, not proved."""
    found = sources(["fwbench.frameworks.jax.resnet:ResNet50"])
    assert list(found.files) == [f"fwbench.frameworks.jax.{name}" for name in ("convolutions", "layers", "resnet")]


def test_a_network_may_use_our_layers(project):
    project(own="import fwbench\nfrom fwbench.frameworks.jax import layers\n")
    layers = [f"fwbench.frameworks.jax.{name}" for name in ("convolutions", "layers")]
    assert list(sources(["own:Net"]).files) == [*layers, "own"]


def test_finding_sources_imports_no_framework():
    code = (
        "import sys; from fwbench.models import CATALOG; from fwbench.models.store import Key; "
        "[Key.of(CATALOG[name], 'jax') for name in ('resnet50', 'mlp')]; "
        "print([name for name in ('torch', 'torchvision', 'jax', 'flax') if name in sys.modules])"
    )
    assert finish(sys.executable, "-c", code, check=True).stdout.strip() == "[]"


def proved(model=MODEL, state="proved", sentence="", **changes):
    key = dataclasses.replace(Key.of(model, "jax"), **changes)
    return Proved(model.name, "jax", "torch", state, sentence, {"output": 1e-14}, {"output": 1e-10}, key)


def test_a_record_names_its_proof(networks, tmp_path):
    store.write(proved(), tmp_path / "proofs")
    found = stamp(MODEL, "jax", tmp_path / "proofs")
    assert (found["framework"], found["state"], found["reason"]) == ("jax", "proved", "")
    assert (found["errors"], found["bounds"]) == ({"output": 1e-14}, {"output": 1e-10})
    assert {"torch", "jax", "flax"} <= found["versions"].keys()
    assert stamp(MODEL, "torch", tmp_path / "proofs") == {"framework": "torch", "state": "reference"}


def test_a_failed_proof_says_what_differs(networks, tmp_path):
    store.write(proved(), tmp_path)
    store.write(proved(state="failed", sentence="gradients differ"), tmp_path)
    found = stamp(MODEL, "jax", tmp_path)
    assert (found["state"], found["reason"]) == ("failed", "gradients differ")


def test_a_proof_is_read_as_it_was_written(networks, tmp_path):
    nearest = Nearest("gradients", "norm.weight", "unit weights, inputs times 0.25", "train", 2e-9, 1e-8)
    left_out = {"initial weights (eval)": "the reference's own numbers are not finite there"}
    untried = ("`mask` = 0 (net.py, line 3)",)
    written = dataclasses.replace(
        proved(), points=("drawn weights",), left_out=left_out, untried=untried, nearest=nearest
    )
    store.write(written, tmp_path)
    assert stamp(MODEL, "jax", tmp_path)["untried"] == list(untried)
    assert store._read(tmp_path, "mine") == [written]
    assert nearest.ratio == pytest.approx(0.2)


def test_another_checkpoint_has_not_been_proved(networks, tmp_path):
    model = fwbench.Model.from_json({**MODEL.to_json(), "checkpoint": "trained.safetensors"})
    (networks / "trained.safetensors").write_bytes(b"some")
    store.write(proved(model), tmp_path)
    assert stamp(model, "jax", tmp_path)["state"] == "proved"
    (networks / "trained.safetensors").write_bytes(b"others")
    found = stamp(model, "jax", tmp_path)
    assert (found["state"], found["reason"]) == ("stale", "trained.safetensors has changed")


def test_without_a_proof_it_is_missing_and_no_promise(networks, tmp_path):
    assert stamp(MODEL, "jax", tmp_path)["state"] == "missing"
    (tmp_path / "mine.json").write_text('[{"model": "mine"}]')
    assert stamp(MODEL, "jax", tmp_path)["state"] == "missing"


def test_one_framework_alone_needs_no_proof(tmp_path):
    model = fwbench.Model("alone", jax="zoo.jax_net:Net", inputs=fwbench.normal(4))
    assert stamp(model, "jax", tmp_path) == {"framework": "jax", "state": "alone"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tolerance": {"output": 1.0}}, "the model's definition has changed"),
        ({"inputs": fwbench.normal(5)}, "the model's definition has changed"),
        ({"weights": {"a": "b"}}, "the model's definition has changed"),
        ({"title": "Mine", "parameters": 3}, ""),
        ({"tensorflow": "zoo.third:Net"}, ""),
        ({"axes": {"length": (1, 2)}}, "the model's definition has changed"),
    ],
)
def test_another_definition_is_another_model(networks, tmp_path, change, reason):
    store.write(proved(), tmp_path)
    fields = {"torch": "zoo.torch_net:Net", "jax": "zoo.jax_net:Net", "inputs": fwbench.normal(4), **change}
    found = stamp(fwbench.Model("mine", **fields), "jax", tmp_path)
    assert (found["state"], found["reason"]) == ("stale" if reason else "proved", reason)


def test_an_edited_network_makes_its_own_proof_stale_and_no_other(networks, tmp_path):
    other = fwbench.Model("other", torch="zoo.torch_net:Net", jax="table:Net", inputs=fwbench.normal(4))
    for model in (MODEL, other):
        store.write(proved(model), tmp_path)
    (networks / "zoo" / "deep" / "blocks.py").write_text("edited = True\n")
    found = stamp(MODEL, "jax", tmp_path)
    assert (found["state"], found["reason"]) == ("stale", "zoo.deep.blocks has changed")
    (networks / "zoo" / "brand_new.py").write_text("")
    assert stamp(other, "jax", tmp_path)["state"] == "proved"


@pytest.mark.parametrize("model", [MODEL, fwbench.Model("mine", torch="zoo.torch_net:Net", inputs=fwbench.normal(4))])
def test_a_compiled_program_is_proved_by_itself_also_without_another_framework(networks, tmp_path, model):
    def state():
        found = stamp(model, "torch-compile", tmp_path)
        assert (found["framework"], found["program"]) == ("torch", "torch-compile")
        return found["state"], found["reason"]

    store.write(proved(), tmp_path)
    assert state() == ("missing", "what the lane torch-compile compiles has never been proved")
    own = Proved("mine", "torch-compile", "torch", "proved", "", {}, {}, Key.of(model, "torch-compile"))
    store.write(own, tmp_path)
    assert state() == ("proved", "")
    assert stamp(MODEL, "jax", tmp_path)["state"] == "proved"
    versions = {"torch": {**own.key.versions["torch"], "torch": "0.1"}}
    earlier = dataclasses.replace(own, key=dataclasses.replace(own.key, versions=versions))
    store.write(earlier, tmp_path / "earlier")
    found = stamp(model, "torch-compile", tmp_path / "earlier")
    assert (found["state"], found["reason"][:17]) == ("stale", "torch was 0.1 and")
    (networks / "zoo" / "torch_net.py").write_text("import torch\n\nEDITED = 1\n")
    assert state() == ("stale", "zoo.torch_net has changed")


def test_other_versions_make_a_proof_stale(networks, tmp_path):
    versions = {name: dict(of) for name, of in Key.of(MODEL, "jax").versions.items()}
    now = versions["jax"]["flax"]
    versions["jax"]["flax"] = "0.1"
    store.write(proved(versions=versions), tmp_path)
    found = stamp(MODEL, "jax", tmp_path)
    assert (found["state"], found["reason"]) == ("stale", f"flax was 0.1 and is {now}")


def test_the_other_frameworks_version_is_looked_for_on_its_own_record(networks, tmp_path):
    """A lane's interpreter need not have it: the report compares what both records say."""
    versions = {name: dict(of) for name, of in Key.of(MODEL, "jax").versions.items()}
    versions["torch"]["torch"] = "0.1"
    store.write(proved(versions=versions), tmp_path)
    found = stamp(MODEL, "jax", tmp_path)
    assert (found["state"], found["versions"]["torch"]) == ("proved", "0.1")


def test_the_suites_own_models_bring_their_proofs(tmp_path, monkeypatch):
    model = CATALOG["mlp"]
    shipped = tmp_path / "shipped"
    monkeypatch.setattr(store, "SHIPPED", shipped)
    store.write(proved(model), shipped)
    assert stamp(model, "jax", tmp_path)["state"] == "proved"
    # Proved again with other versions, in a project of the user's.
    store.write(proved(model, definition="older"), shipped)
    assert stamp(model, "jax", tmp_path)["state"] == "stale"
    store.write(proved(model), tmp_path)
    assert stamp(model, "jax", tmp_path)["state"] == "proved"
    # And the other way round: the project's is the older one.
    store.write(proved(model, definition="older"), tmp_path)
    store.write(proved(model), shipped)
    assert stamp(model, "jax", tmp_path)["state"] == "proved"


def test_proofs_of_two_frameworks_are_kept_side_by_side(networks, tmp_path):
    store.write(proved(), tmp_path)
    store.write(dataclasses.replace(proved(), candidate="tensorflow"), tmp_path)
    assert stamp(MODEL, "jax", tmp_path)["state"] == "proved"
    assert [path.name for path in tmp_path.glob("*mine*")] == ["mine.json"]


def test_proofs_of_several_sets_of_versions_are_kept_until_a_source_changes(networks, tmp_path):
    now = proved()
    older = proved(versions={"torch": {"torch": "0.1"}, "jax": {"jax": "0.1"}})
    for each in (older, now, now):
        store.write(each, tmp_path)
    assert store._read(tmp_path, "mine") == [older, now]
    edited = proved(files={})
    store.write(edited, tmp_path)
    assert store._read(tmp_path, "mine") == [edited]


def test_proofs_are_no_records(networks, tmp_path):
    store.write(proved(), tmp_path / PROOFS)
    assert runs(tmp_path / PROOFS.parent) == []
