"""The namespace of tasks, for `invoke` (through tasks.py) and for the `jetship` command.

invoke wants the options of every task before it runs one. So the modules of this folder import at
their top what options need, and inside a function what only its own task works with: otherwise
`check` would wait for Docker's library and `targets` for the whole of the build.
"""

from invoke.collection import Collection

import jetship
from jetship.tasks.bench import bench
from jetship.tasks.caches import cache
from jetship.tasks.check import check
from jetship.tasks.fleet import deploy, rollback, status
from jetship.tasks.images import image, matrix, smoke
from jetship.tasks.k8s import k8s
from jetship.tasks.machine import doctor, pins, targets
from jetship.tasks.probe import probe
from jetship.tasks.program import JetshipProgram
from jetship.tasks.schema import schema
from jetship.tasks.toolchains import toolchain
from jetship.tasks.wheels import build


def namespace() -> Collection:
    """Return jetship's tasks as an invoke namespace; a repository may add its own."""
    own = (
        build,
        check,
        image,
        smoke,
        matrix,
        deploy,
        status,
        rollback,
        schema,
        k8s,
        toolchain,
        targets,
        doctor,
        pins,
        cache,
        bench,
        probe,
    )
    return Collection(*own)


program = JetshipProgram(name="jetship", version=jetship.__version__, namespace=namespace())
