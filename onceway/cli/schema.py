"""`onceway schema`: the JSON Schema of topology files, for editors."""

from __future__ import annotations

import click


@click.command("schema")
def command() -> None:
    """Print the JSON Schema of topology files, by which editors complete and check them.

    A file names it in its first line, where it is in the file's directory: # yaml-language-server:
    $schema=topology.schema.json
    """
    from onceway.topology.reference import schema_text

    click.echo(schema_text(), nl=False)
