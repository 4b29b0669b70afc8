"""Humane units for the screen; records keep SI."""


def seconds(value: float) -> str:
    """12.3 ms, 4.56 s: three significant digits."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= factor:
            return f"{_three(value / factor)} {unit}"
    return f"{_three(value / 1e-9)} ns"


def size(value: float) -> str:
    """Bytes in binary units: 1.23 GiB."""
    for factor, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= factor:
            return f"{_three(value / factor)} {unit}"
    return f"{value:.0f} B"


def joules(value: float) -> str:
    """1.23 J, 45.6 mJ."""
    if abs(value) >= 1:
        return f"{_three(value)} J"
    return f"{_three(value * 1e3)} mJ"


def rate(value: float) -> str:
    """Samples per second: 12.3, 4560, 1.23 M."""
    if value >= 1e6:
        return f"{_three(value / 1e6)} M"
    return f"{value:.0f}" if value >= 100 else _three(value)


def ratio(value: float) -> str:
    """1.23x."""
    return f"{value:.2f}x"


def _three(value: float) -> str:
    magnitude = abs(value)
    return f"{value:.0f}" if magnitude >= 99.95 else f"{value:.1f}" if magnitude >= 9.995 else f"{value:.2f}"
