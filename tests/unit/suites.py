"""A user's suite outside this repository, in real pytest runs."""

import pytest

FAST = ("--benchmark-max-time=0", "--benchmark-min-rounds=7")


def benchmarks(model="noop", lane="noop", sizes=(1, 2, 3), marks=None, first=""):
    """A test file of one benchmark for each batch size.

    Args:
        marks: decorators by batch size.
        first: code at the start of each test.
    """
    parts = ["import pytest\n\nimport fwbench\n"]
    for size in sizes:
        mark = (marks or {}).get(size)
        parts.append(
            (f"@{mark}\n" if mark else "")
            + f'@fwbench.benchmark("{model}", lanes=["{lane}"], batch_sizes=[{size}])\n'
            + f"def test_{size}(fwbench_workload, fwbench_measure):\n"
            + (f"    {first}\n" if first else "")
            + "    fwbench_measure()\n"
        )
    return "\n\n".join(parts)


@pytest.fixture
def suite(pytester, request, monkeypatch):
    """A suite over three workloads that do nothing."""
    monkeypatch.setenv("PYTHONPATH", str(request.config.rootpath))
    # A run under xdist hands this down, and pytest-benchmark takes it as a word to switch itself off.
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makeconftest('pytest_plugins = ["fwbench.plugin"]')
    pytester.makepyfile(test_suite=benchmarks())
    return pytester


def run(suite, *arguments):
    """The suite in a process of its own."""
    return suite.runpytest_subprocess("-p", "no:cacheprovider", *arguments)
