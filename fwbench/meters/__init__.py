"""Meters of a running program: time, memory and energy. A meter that cannot read gives the reason."""
