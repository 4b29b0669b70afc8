"""`fwbench prove`: proves that the networks of a model's frameworks compute the same thing."""

import argparse
import sys
from collections.abc import Iterable, Sequence

from fwbench.commands.collecting import collected, has_framework
from fwbench.errors import UserError, hint
from fwbench.ext.proofs.client import interpreter, prove
from fwbench.models import CATALOG, Model
from fwbench.models.project import Project, complete, proofs
from fwbench.models.store import Power, Proved, of_suite
from fwbench.record.lanes import LANES, framework_of
from fwbench.record.lanes import candidate as candidate_of
from fwbench.suite.selection import pythons

# Exit code where a proof found a difference.
_NOT_THE_SAME = 1

# Most untried sides, or mistakes that were not found, that a sentence lists.
_LISTED = 6

_MODES = {"eval": "inference", "train": "training"}


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compares each framework's network with the reference's in float64: output, loss, gradients, "
        "running statistics, and the losses of five SGD and Adam steps; and what each loses in float32. It says which "
        "choices of the networks were not tried, and tables then say `checked` in place of `proved`. Of a compiler's "
        "lane it compares outputs alone. A proof is kept for as long as the model, its source files and the "
        "frameworks' versions stay as they are. Ends with 1 where networks differ, 4 where there can be no proof, "
        "else 0."
    )
    parser.add_argument(
        "models",
        nargs="*",
        metavar="MODEL",
        help="names of models that the project's tests name, or of the suite's own. Default: all that the tests name",
    )
    parser.add_argument(
        "--lanes",
        metavar="LANE,...",
        help="prove what these lanes compute, such as the program that torch-compile makes. Default: the networks of "
        "all frameworks",
    )
    parser.add_argument(
        "--python",
        metavar="FRAMEWORK=PATH",
        action="append",
        default=[],
        help="interpreter that proves a framework's networks, as pytest's --fwbench-python names the one that measures "
        "them; it needs the reference's framework, too. May be repeated. Default: what pytest's own settings name",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    given = pythons(options.python, "--python")
    # The suite's own models are known without looking at any test.
    found = collected(collecting=not (options.models and set(options.models) <= set(CATALOG)))
    project, others = found.project, {**pythons(found.pythons), **given}
    code = 0
    for chosen in _chosen(options.models, project, found.models):
        pairs = _of_lanes(chosen, options.lanes.split(",")) if options.lanes else proofs(chosen)
        if not pairs:
            print(f"{chosen.name}: only in {chosen.reference}, so there is nothing to prove")
        for model, candidate in pairs:
            here = interpreter(model, candidate, others) == sys.executable
            if here and of_suite(model, candidate) and not has_framework(framework_of(candidate)):
                print(f"{model.name}: {candidate} is not installed here, so its network is not proved")
                continue
            try:
                proved = prove(model, candidate, project, tell, pythons=others)
            except UserError as error:
                print(f"fwbench: {error}", file=sys.stderr)
                code = code or UserError.EXIT_CODE
                continue
            differs = proved.state != "proved" and not (proved.training_alone and chosen.name in found.untrained)
            print(_line(proved, differs=differs), flush=True)
            if differs:
                code = _NOT_THE_SAME
    return code


def _chosen(names: Iterable[str], project: Project, named: list[Model]) -> list[Model]:
    if not names:
        if not named:
            raise UserError(
                "no test names a model to prove: mark one with @fwbench.proof(model) or @fwbench.benchmark(model), or "
                f"name one of the suite's own: {', '.join(name for name in CATALOG if CATALOG[name].networks)}."
            )
        return named
    for name in names:
        if name not in project.models or not project.models[name].networks:
            known = ", ".join(name for name, model in project.models.items() if model.networks)
            raise UserError(f"no test names a model {name!r}, and the suite has none: choose from {known}.")
    return [project.models[name] for name in names]


def _of_lanes(model: Model, lanes: Iterable[str]) -> list[tuple[Model, str]]:
    """The proofs of what these lanes compute, as `fwbench.models.project.proofs` has them."""
    known = programs(model)
    for lane in lanes:
        if lane not in known:
            raise UserError(f"no proof compares what the lane {lane!r} computes of {model.name}: {hint(lane, known)}.")
    return [(complete(model), known[lane]) for lane in dict.fromkeys(lanes)]


def programs(model: Model) -> dict[str, str]:
    """By lane, the candidate of the proof of what it computes; lanes of the reference itself are left out.

    The candidate is the lane's framework, or the lane where its own program is proved.
    """
    of_lanes = {lane.name: candidate_of(lane) for lane in LANES.values()}
    runs = complete(model).networks
    return {lane: of for lane, of in of_lanes.items() if of not in ("", model.reference) and framework_of(of) in runs}


def _line(proved: Proved, *, differs: bool) -> str:
    """The result of a proof, in which something `differs` that tests measure, or nothing."""
    scope = "" if proved.candidate == framework_of(proved.candidate) else " in inference"
    pair = f"{proved.candidate} {{}} the same as {proved.reference}{scope}"
    if differs:
        return f"{proved.model}: {pair.format('does not compute')}: {proved.sentence}"
    count = len(proved.untried)
    but = f", but for {count} choice{'s' * (count > 1)} not tried," if count else ""
    at = f"{but} at {len(proved.points)} points ({'; '.join(proved.points)})" if proved.points else but
    left_out = [f"not compared at {point}: {reason}" for point, reason in proved.left_out.items()]
    if proved.state == "proved":
        line = f"{pair.format('computes')}{at} (closest to its bound: {_nearest(proved)})"
        power = f"The proof {_power(proved.power)}" if proved.power else ""
        rest = [power, proved.sentence]
    else:
        line = f"in inference, which is all that the tests measure, {pair.format('computes')}{at}"
        rest = [f"In training it does not: {proved.sentence}"]
    return ". ".join(filter(None, [f"{proved.model}: {line}", *left_out, _untried(proved.untried), *rest]))


def _nearest(proved: Proved) -> str:
    nearest = proved.nearest
    if nearest is None:
        worst = max(proved.errors, key=lambda quantity: proved.errors[quantity] / proved.bounds[quantity])
        return f"{worst} {proved.errors[worst]:.1e}, at most {proved.bounds[worst]:.0e}"
    tensor = "" if nearest.tensor == nearest.quantity else f" of {nearest.tensor}"
    return f"{nearest.quantity}{tensor} {nearest.error:.1e}, at most {nearest.bound:.0e}, in {nearest.mode} mode"


def _untried(sides: Sequence[str]) -> str:
    """The sides that were not tried, as `not tried: `mask` = 0 (net.py, line 12)`; empty if there are none."""
    return f"not tried: {_listed(sides, '; ')}" if sides else ""


def _power(power: Power) -> str:
    """In words: `would have found 187 of 190 mistakes planted in inference; not found: clip at -2 (a.py:41)`."""
    planted = f"mistakes planted in {' and '.join(map(_MODES.__getitem__, power.modes))}" if power.modes else ""
    counted = f"would have found {power.found} of {power.planted} {planted or 'planted mistakes'}"
    return counted + (f"; not found: {_listed(power.missed, ', ')}" if power.missed else "")


def _listed(every: Sequence[str], between: str) -> str:
    more = [f"and {len(every) - _LISTED} more"] if len(every) > _LISTED else []
    return between.join([*every[:_LISTED], *more])


def tell(stage: str) -> None:
    """Show a stage of a proof on a terminal, in the place of the last one."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K  {stage}", end="\r", file=sys.stderr, flush=True)
