"""Which target is built when, so that all cores are busy and none is asked for too much."""

import concurrent.futures
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from jetship import proc
from jetship.targets.model import Target

Result = TypeVar("Result")


def run_all(
    targets: Sequence[Target], work: Callable[[Target, int], Result], *, jobs: int
) -> list[Result]:
    """Work on every target, several at a time, and return the results in the given order.

    The first target of a platform goes ahead: it prepares the toolchain and leaves objects in the
    compiler cache that the others of the platform share. All compilers together are no more than
    `jobs`, so that memory suffices.

    Args:
        targets: what to work on.
        work: is given a target and how many compilers it may run at once.
        jobs: how many compilers may run at once in all.

    Raises:
        whatever `work` raises; the programs that are still running are stopped first.
    """
    if len(targets) == 1:
        # In this thread, which Ctrl-C interrupts wherever it is.
        return [work(targets[0], jobs)]
    waiting: deque[Target] = deque()
    followers: dict[str, list[Target]] = {}
    for target in targets:
        if target.platform.name in followers:
            followers[target.platform.name].append(target)
        else:
            followers[target.platform.name] = []
            waiting.append(target)
    running: dict[Future[Result], tuple[Target, int]] = {}
    done: dict[str, Result] = {}
    stopper = proc.Stopper()

    def stoppable(target: Target, each: int) -> Result:
        with proc.with_stopper(stopper):
            return work(target, each)

    with ThreadPoolExecutor(max_workers=max(1, min(jobs, len(targets)))) as pool:

        def start() -> None:
            """Start what waits, as far as there are jobs that no other target has."""
            free = jobs - sum(each for _, each in running.values())
            while waiting and free > 0:
                each = max(1, free // len(waiting))
                target = waiting.popleft()
                running[pool.submit(stoppable, target, each)] = (target, each)
                free -= each

        try:
            start()
            while running:
                ready, _ = concurrent.futures.wait(
                    running, return_when=concurrent.futures.FIRST_COMPLETED
                )
                for future in ready:
                    target, _ = running.pop(future)
                    done[target.id] = future.result()
                    waiting.extend(followers.pop(target.platform.name, []))
                start()
        except BaseException:
            stopper.stop()
            raise
    return [done[target.id] for target in targets]
