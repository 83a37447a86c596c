"""Rolling out for people: sessions by SSH, layers of this machine's engine, a journal, a view."""

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

from jetship import console
from jetship.engine import connect
from jetship.fleet import model
from jetship.fleet.alone import alone
from jetship.fleet.journal import Journal, Listener, State, newest_unfinished, read, unfinished
from jetship.fleet.layers import LayeredImage, layered_image
from jetship.fleet.link import open_link, this_user
from jetship.fleet.onedevice import OneDevice
from jetship.fleet.outcome import told_interrupted
from jetship.fleet.plan import Plan, PlannedDevice, count_of
from jetship.fleet.rollout import Rollout
from jetship.fleet.sessions import Opener, Sessions
from jetship.fleet.watching import watching
from jetship.ssh import Login
from jetship.store import Store
from jetship.targets.catalog import Catalog
from jetship.targets.device import Address


def begin(
    make: Callable[[], Plan], folder: Path, catalog: Catalog, store: Store
) -> tuple[Plan, State]:
    """Roll out, with a new journal in `folder`, and return the plan and how it ended.

    Args:
        make: makes the plan, once nobody else on this machine rolls out by this folder.
        folder: of the journals.
        catalog: the known boards and platforms.
        store: the cache.

    Raises:
        RolloutError: somebody else rolls out by this folder, or nobody confirmed the next wave.
        KeyboardInterrupt: somebody interrupted it.
        JetshipError: what `make` raises; the journal cannot be written.
    """
    with alone(folder):
        if former := newest_unfinished(folder):
            console.warn(
                f"rollout {former} did not end, and cannot go on any more once this one has begun "
                "(`invoke deploy --resume` would have gone on with it)"
            )
        plan = make()

        def journal_of(told: Listener) -> Journal:
            return Journal.begin(folder, plan.to_json(), by=this_user(), told=told)

        return plan, _run(plan, catalog, store, journal_of)


def resume(folder: Path, catalog: Catalog, store: Store) -> tuple[Plan, State]:
    """Go on with the newest rollout by the journals of a folder; otherwise as `begin`.

    Raises:
        NothingSelectedError: there is none that did not end.
    """
    with alone(folder):
        path = unfinished(folder)
        plan = Plan.from_json(read(path).plan)
        return plan, _run(
            plan, catalog, store, lambda told: Journal.reopen(path, by=this_user(), told=told)
        )


def would_resume(folder: Path) -> tuple[Plan, State]:
    """Return the plan that a resume would go on with, and how far it is; nothing is done.

    Raises:
        NothingSelectedError: there is none that did not end.
    """
    state = read(unfinished(folder))
    return Plan.from_json(state.plan), state


def _run(
    plan: Plan, catalog: Catalog, store: Store, journal_of: Callable[[Listener], Journal]
) -> State:
    with watching(plan) as view:
        journal = journal_of(view.told)
        rollout = journal.state.release
        console.step(f"rollout {rollout} to {count_of(len(plan.devices))}")

        def release(device: PlannedDevice) -> str:
            return rollout if plan.action == "rollback" else plan.release_of(device, rollout)

        sessions = Sessions(opener_for(plan.app, release), release)
        work = OneDevice(plan, journal, sessions, layers_for(store), catalog, view)
        try:
            return Rollout(plan, journal, sessions, work, view.confirm).run()
        except KeyboardInterrupt:
            console.warn(told_interrupted(plan, journal.state))
            raise


def opener_for(app: str, release: Callable[[PlannedDevice], str], *, look: bool = False) -> Opener:
    """Return what opens sessions with devices.

    Args:
        app: names the containers and the state there.
        release: what the lock of a device says meanwhile.
        look: only to see what they are.
    """

    def opener(device: PlannedDevice) -> model.Link:
        login = Login(
            Address.parse(device.address),
            Path(device.identity) if device.identity else None,
            Path(device.known_hosts) if device.known_hosts else None,
            device.python,
        )
        return open_link(login, app=app, release=release(device), state=device.state, look=look)

    return opener


def layers_for(store: Store) -> Callable[[str], LayeredImage]:
    """Return what gives an image's layers; each is made once, and others wait for it."""
    made: dict[str, LayeredImage] = {}
    lock = threading.Lock()

    def layers(image: str) -> LayeredImage:
        with lock:
            if image not in made:
                with contextlib.closing(connect()) as client:
                    made[image] = layered_image(client, image, store)
            return made[image]

    return layers
