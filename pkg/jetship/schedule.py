"""Which target is built when, so that all cores are busy and none is asked for too much."""

import concurrent.futures
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
    followers: dict[str, list[Target]] = {}
    leaders: list[Target] = []
    for target in targets:
        behind = followers.get(target.platform.name)
        if behind is None:
            leaders.append(target)
            followers[target.platform.name] = []
        else:
            behind.append(target)
    running: dict[Future[Result], Target] = {}
    done: dict[str, Result] = {}
    stopper = proc.Stopper()

    def stoppable(target: Target, each: int) -> Result:
        with proc.with_stopper(stopper):
            return work(target, each)

    with ThreadPoolExecutor(max_workers=max(1, min(jobs, len(targets)))) as pool:

        def start(some: Sequence[Target], beside: int) -> None:
            each = max(1, jobs // max(1, min(jobs, len(some) + beside)))
            for target in some:
                running[pool.submit(stoppable, target, each)] = target

        try:
            start(leaders, 0)
            while running:
                ready, _ = concurrent.futures.wait(
                    running, return_when=concurrent.futures.FIRST_COMPLETED
                )
                for future in ready:
                    target = running.pop(future)
                    done[target.id] = future.result()
                    start(followers.pop(target.platform.name, []), len(running))
        except BaseException:
            for future in running:
                future.cancel()
            stopper.stop()
            raise
    return [done[target.id] for target in targets]
