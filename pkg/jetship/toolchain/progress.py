"""A progress bar over a folder that another program fills."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

from jetship import console

POLL_SECONDS = 0.2


@contextlib.contextmanager
def watch_folder(folder: Path, *, total_bytes: int, title: str) -> Iterator[None]:
    """Show how much of `total_bytes` lies in `folder` while the body runs.

    apt and pip write their downloads below `folder`; their own bars are for terminals only
    and would be two kinds of progress.
    """
    if console.has_live_display():
        yield
        return
    columns = (TextColumn("    {task.description}"), BarColumn(), DownloadColumn(),
               TransferSpeedColumn(), TimeElapsedColumn())  # fmt: skip
    stop = threading.Event()
    with Progress(*columns, console=console.stderr) as progress:
        task = progress.add_task(title, total=total_bytes)

        def poll() -> None:
            while not stop.wait(POLL_SECONDS):
                progress.update(task, completed=min(_bytes_below(folder), total_bytes))

        poller = threading.Thread(target=poll, daemon=True)
        poller.start()
        try:
            yield
            progress.update(task, completed=total_bytes)
        finally:
            stop.set()
            poller.join()


def _bytes_below(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        # The downloader renames and deletes under our eyes.
        with contextlib.suppress(OSError):
            total += path.lstat().st_size
    return total
