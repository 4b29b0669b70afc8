"""Meters of a running program: time, memory and energy. A meter that cannot read gives the reason.

A program is compiled and warm, unless the meter compiles it. A `clock` returns seconds, and `sleep` lets seconds pass.
A text in place of an energy counter is the reason why there is none.
"""
