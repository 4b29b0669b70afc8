"""Readers of the text of XLA's programs: StableHLO as lowered, and the optimised HLO that XLA made of it."""

import dataclasses
import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from fwbench.record.fingerprint import Fingerprint

# An operator begins its line, after the names of its results: pretty-printed, in MLIR's generic form, or a call.
_OPERATOR = re.compile(r'^\s*(?:%[^=]+= )?"?(?:(?P<name>[a-z]\w*\.\w+)"?[ (<]|call @)')
_FUNCTION = re.compile(r"^\s*func\.func (?:public |private )?@(?P<name>[\w.$-]+)\(", re.MULTILINE)
_CALL = re.compile(r"\bcall @(?P<name>[\w.$-]+)\(")
_ELEMENT = re.compile(r"tensor<(?:[\d?]+x)*(?P<type>\w+(?:<\w+>)?)[,>]")
# Attributes without meaning for the arithmetic: names from the Python source, and an array's placement on one device.
_IDLE = re.compile(
    r'(?:, )?(?:(?:jax\.result_info|jax\.arg_info|mhlo\.arg_name) = "[^"]*"'
    r"|sdy\.sharding = #sdy\.sharding<@empty_mesh[^>]*>)"
)
_LOCATION = re.compile(r" loc\((?:[^()]|\([^()]*\))*\)|^#loc.*\n", re.MULTILINE)
_MESH = re.compile(r"^\s*sdy\.mesh @empty_mesh .*\n", re.MULTILINE)

# Optimised HLO: each instruction's name and (first) element type; products with their first operand's name; the
# precision asked of operands; calls of libraries.
_DEFINED = re.compile(r"^\s*(?:ROOT )?%(?P<name>[\w.-]+) = \(*(?P<type>\w+)\[", re.MULTILINE)
_PRODUCT = re.compile(
    r" (?P<kind>dot|convolution|custom-call)\((?:\w+\[[^\]]*\](?:\{[^}]*\})? )?%(?P<operand>[\w.-]+)(?P<rest>.*)"
)
_BY_LIBRARY = re.compile(r'custom_call_target="__(?:cublas|cudnn\$conv)')
_PRECISION = re.compile(r'operand_precision(?:=\{|":\[)(?P<both>[^}\]]*)')
_LIBRARY = re.compile(r'custom_call_target="(?P<call>[^"]+)"|"kind":"(?P<fusion>__cudnn[^"]*)"')

# Optimised HLO: an instruction with the shape of its result, and the place in the source that asked for it, directly or
# by the number of a stack frame. The tables of frames, places and files stand at the module's beginning.
_INSTRUCTION = re.compile(r"\s*(?:ROOT )?%(?P<name>[\w.-]+) = (?P<shape>\([^()]*\)|\S+) ")
_LAYOUT = re.compile(r"\{[^}]*\}")
_SOURCE = re.compile(r'source_file="(?P<file>[^"]*)".*?source_line=(?P<line>\d+)')
_FRAME_OF = re.compile(r"stack_frame_id=(\d+)")
_FILE_NAME = re.compile(r'^(\d+) "(.*)"$', re.MULTILINE)
_PLACE = re.compile(r"^(\d+) \{file_name_id=(\d+) function_name_id=\d+ line=(\d+)", re.MULTILINE)
_FRAME = re.compile(r"^(\d+) \{file_location_id=(\d+) parent_frame_id=(\d+)\}$", re.MULTILINE)

_NUMPY = {"pred": "bool", "i1": "bool", "complex<f32>": "complex64", "complex<f64>": "complex128"}
_KINDS = {"bf": "bfloat", "f": "float", "ui": "uint", "i": "int"}


def fingerprint(lowered: Fingerprint, optimised: str, **facts: Any) -> Fingerprint:
    """The fingerprint of a program, lowered and optimised; the facts are further fields, `absent` among them."""
    return dataclasses.replace(
        lowered,
        fusions=fusions(optimised),
        libraries=libraries(optimised),
        precisions=precisions(optimised),
        aliased=aliased(optimised),
        **facts,
    )


def lowered(text: str) -> Fingerprint:
    """Read a module's StableHLO: its digest, operators and element types."""
    own: dict[str, Counter[tuple[str, str]]] = {}
    calls: dict[str, Counter[str]] = {}
    function = ""
    for line in text.splitlines():
        if match := _FUNCTION.match(line):
            function = match["name"]
            own[function], calls[function] = Counter(), Counter()
            if function == "main":
                for element in _ELEMENT.finditer(line.partition("->")[0]):
                    own[function]["argument", _dtype(element["type"])] += 1
        elif function and (match := _OPERATOR.match(line)):
            if called := _CALL.search(line):
                calls[function][called["name"]] += 1
            elif (name := match["name"].removeprefix("stablehlo.")) != "return":
                own[function][name, ""] += 1
                for kind in {element["type"] for element in _ELEMENT.finditer(line)}:
                    own[function][name, _dtype(kind)] += 1
    totals = _called("main", own, calls)
    dtypes: dict[str, dict[str, int]] = {"": {}}
    for (name, dtype), count in sorted(totals.items(), key=str):
        dtypes.setdefault(dtype, {})[name] = count
    operators = dtypes.pop("")
    return Fingerprint("StableHLO", hashlib.sha256(canonical(text).encode()).hexdigest(), operators, dtypes)


def canonical(text: str) -> str:
    """The module without text of no arithmetic meaning: names, locations, shardings over no mesh, indentation."""
    functions = {match["name"]: f"f{number}" for number, match in enumerate(_FUNCTION.finditer(text))}
    text = re.sub(r"^module @\S+", "module @m", text, count=1, flags=re.MULTILINE)
    text = re.sub(r"@([\w.$-]+)", lambda match: f"@{functions.get(match[1], match[1])}", text)
    text = _IDLE.sub("", _MESH.sub("", _LOCATION.sub("", text))).replace("{, ", "{").replace(" {}", "")
    return re.sub(r"[ \t]+", " ", text)


def fusions(optimised: str) -> int:
    """Fused computations in XLA's optimised HLO; one in a loop's body counts once."""
    return optimised.count(" fusion(")


def libraries(optimised: str) -> dict[str, int]:
    """Calls out of XLA's optimised HLO by name, such as `cublas$lt$matmul`; one in a loop's body counts once."""
    names = ((match["call"] or match["fusion"]).removeprefix("__") for match in _LIBRARY.finditer(optimised))
    return dict(sorted(Counter(names).items()))


def precisions(optimised: str) -> dict[str, int]:
    """Counts of products and convolutions in XLA's optimised HLO, cuBLAS's and cuDNN's too, by type and precision.

    The keys are such as `float32 highest`.
    """
    types = {match["name"]: match["type"] for match in _DEFINED.finditer(optimised)}
    counts: Counter[str] = Counter()
    for match in _PRODUCT.finditer(optimised):
        if match["kind"] == "custom-call" and not _BY_LIBRARY.search(match["rest"]):
            continue
        stated = _PRECISION.search(match["rest"])
        # A fused convolution has further operands.
        both = re.findall(r"\w+", stated["both"].lower())[:2] if stated else ["default"]
        counts[f"{_dtype(types[match['operand']])} {'/'.join(dict.fromkeys(both))}"] += 1
    return dict(sorted(counts.items()))


def instructions(optimised: str) -> dict[str, tuple[str, str]]:
    """The shape of each instruction's result, and its place in the source: `f32[8,128]` and `model.py:41`.

    A place in an installed package is replaced by the nearest calling line outside of packages; it is empty if XLA
    has no stack frames.
    """
    frames = _frames(optimised)
    instructions = {}
    for line in optimised.splitlines():
        if instruction := _INSTRUCTION.match(_LAYOUT.sub("", line)):
            about = line.partition("metadata={")[2]
            place = ""
            if (source := _SOURCE.search(about)) and not _is_installed(source["file"]):
                place = f"{source['file']}:{source['line']}"
            elif frame := _FRAME_OF.search(about):
                place = frames.get(int(frame[1]), "")
            instructions[instruction["name"]] = (instruction["shape"], place)
    return instructions


def aliased(optimised: str) -> int:
    """Arguments whose buffer an output takes over, from the optimised HLO's first line."""
    return len(re.findall(r"\b(?:may|must)-alias\b", optimised.partition("\n")[0]))


def _frames(optimised: str) -> dict[int, str]:
    """The place in the source of each stack frame, by the frame's number."""
    head = optimised.partition("\n%")[0]
    names = head.partition("FunctionNames")[0]
    files = {int(number): name for number, name in _FILE_NAME.findall(names)}
    places = {int(number): (files.get(int(file), ""), line) for number, file, line in _PLACE.findall(head)}
    frames = {int(number): (int(place), int(parent)) for number, place, parent in _FRAME.findall(head)}
    # Some versions write a parent's number plus one: there the first frame seems to be its own parent.
    offset = frames.get(1, (0, 0))[1]
    sources = {}
    for number in frames:
        place, at = "", number
        while at in frames:
            file, line = places.get(frames[at][0], ("", ""))
            place = place or f"{file}:{line}"
            if file and not _is_installed(file):
                place = f"{file}:{line}"
                break
            # Parents have smaller numbers. `min` ends the loop even for a malformed table.
            at = min(frames[at][1] - offset, at - 1)
        sources[number] = place.removeprefix(":")
    return sources


def _is_installed(file: str) -> bool:
    return not {"site-packages", "dist-packages"}.isdisjoint(file.split("/"))


def _called(
    function: str, own: Mapping[str, Counter[tuple[str, str]]], calls: Mapping[str, Counter[str]]
) -> Counter[tuple[str, str]]:
    """A function's operators, including those of the functions it calls; StableHLO has no recursion."""
    total = Counter(own[function])
    for name, times in calls[function].items():
        for key, count in _called(name, own, calls).items():
            total[key] += times * count
    return total


def _dtype(element: str) -> str:
    """NumPy's name of an MLIR element type; MLIR's name if NumPy has none."""
    return _NUMPY.get(element) or re.sub(r"^(bf|f|ui|i)(?=\d+$)", lambda match: _KINDS[match[1]], element)
