"""The date of a record: its own, unless a wrong clock or an editor has spoilt it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

# No record of pytest-benchmark is older. A clock without a battery begins in 1970.
_FIRST = datetime(2010, 1, 1, tzinfo=UTC)
# The clocks of machines that share a disk may differ by this much.
_AHEAD = timedelta(minutes=10)
_UNKNOWN = datetime.fromtimestamp(0, UTC)


def made(text: object, path: Path) -> tuple[datetime, str]:
    """The time at which a record was made, in UTC, and a phrase if that is not the record's own date.

    If its own date is missing or cannot be true, the file's date counts. If that cannot be true either, the record
    counts as older than all others. So no record with a wrong date stays the newest one.
    """
    try:
        stated = datetime.fromisoformat(str(text))
        # Older versions of pytest-benchmark leave out the time zone, which is UTC.
        stated = (stated if stated.tzinfo else stated.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        why = f"its date, {str(text)!r:.60}, is none"
    else:
        if _possible(stated):
            return stated, ""
        why = f"its date, {stated:%Y-%m-%d %H:%M} UTC, lies {'in the future' if stated > _FIRST else 'before its time'}"
    try:
        of_file = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except (OSError, ValueError, OverflowError):
        of_file = _UNKNOWN
    if _possible(of_file):
        return of_file, f"{why}: the date of the file counts"
    return _UNKNOWN, f"{why}, and the file has no possible date either: it counts as older than all others"


def _possible(date: datetime) -> bool:
    return _FIRST <= date <= datetime.now(UTC) + _AHEAD
