"""The time stamp of everything that is made, so that the same inputs give the same bytes."""

import os

from jetship.errors import ConfigError

# The last time that a zip archive, and so a wheel, can hold: the end of 2107.
LATEST = 4354819198


def source_date_epoch(default: int) -> int:
    """Return SOURCE_DATE_EPOCH in seconds, or `default` where it is not set.

    Raises:
        ConfigError: it is not a whole number of seconds, or a time that no wheel can hold.
    """
    text = os.environ.get("SOURCE_DATE_EPOCH")
    if text is None:
        return default
    if not text.isdecimal():
        raise ConfigError(
            f"SOURCE_DATE_EPOCH is {text!r}, not a whole number of seconds",
            fix="unset it, or set it to seconds since 1970",
        )
    if len(text) > len(str(LATEST)) or int(text) > LATEST:
        raise ConfigError(
            f"SOURCE_DATE_EPOCH is {text}, and wheels have no times after 2107 ({LATEST})",
            fix="unset it, or set it to seconds since 1970 (not milliseconds)",
        )
    return int(text)
