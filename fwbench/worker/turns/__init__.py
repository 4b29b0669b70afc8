"""Processes that take turns: `player` is the measured process, and everything else runs on pytest's side."""
