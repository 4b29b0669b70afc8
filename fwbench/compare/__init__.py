"""Compares two sides: tells a real difference from chance, and turns it into CI's exit code."""
