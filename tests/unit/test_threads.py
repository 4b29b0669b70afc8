"""What is computed by several threads at once."""

import time

import pytest

from fwbench.threads import on_all_cpus


def test_results_are_in_the_order_of_the_items_whichever_is_done_first():
    def call(number):
        time.sleep(0.02 * (number == 0))
        return 10 * number

    assert on_all_cpus(call, range(5)) == [0, 10, 20, 30, 40]
    assert on_all_cpus(call, []) == []


def test_an_error_is_the_callers():
    with pytest.raises(ZeroDivisionError):
        on_all_cpus(lambda number: 1 / number, [1, 0, 2])
