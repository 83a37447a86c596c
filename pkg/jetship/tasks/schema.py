"""The task `schema`."""

import json
from pathlib import Path

from invoke.context import Context

from jetship import console
from jetship.store import write_atomically
from jetship.tasks.command import command
from jetship.tasks.request import DEPLOY_FILE, DEPLOY_HELP, Known


@command(
    records={"known": Known},
    help={"out": "write it to this file instead of stdout", "deploy": DEPLOY_HELP},
)
def schema(_: Context, *, known: Known, out: str = "", deploy: str = str(DEPLOY_FILE)) -> None:
    """Print the JSON Schema of deploy.yaml, for editors and CI.

    Editors that know yaml-language-server complete and check a deploy.yaml that begins with
    `# yaml-language-server: $schema=deploy.schema.json`.

        invoke schema --out deploy.schema.json
    """
    from jetship.targets.schema import deployment_schema

    text = json.dumps(deployment_schema(known.catalog(deploy)), indent=2, ensure_ascii=False)
    if not out:
        console.emit(text)
        return
    write_atomically(Path(out), f"{text}\n".encode())
    console.note(f"{out}: name it in the first line of deploy.yaml, as in")
    console.emit(f"# yaml-language-server: $schema={out}")
