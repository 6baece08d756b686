"""How far a long command is: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from horae.cli.screen import Screen, clean

Advance = Callable[[int], None]


@contextlib.contextmanager
def progress(screen: Screen, text: str, total: int | None = None, *, of_bytes: bool = False) -> Iterator[Advance]:
    """Give a function that is told how many more are done; without `total`, nobody knows how many there are."""
    if not (screen.is_terminal and sys.stderr.isatty()):
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    count = DownloadColumn() if of_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), count, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(clean(text), total=total)
        yield lambda count: bar.advance(task, count)
