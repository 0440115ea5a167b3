"""Every command of an edge reaches routers that let in users through TLS only, with the options of all commands."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import yaml

from chaos.live.ports import free_port
from tests.guarded import PASSWORD, Guarded


def test_commands_of_edges_log_in_through_tls(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path, "a")
    path = guarded.network.topology_path
    document = yaml.safe_load(path.read_text())
    document["addresses"] = [{"match": "jobs", "type": "pipe", "user": "alice", "stores": {"s": free_port()}}]
    document["addresses"][0]["store_tls"] = "outside"
    document["mqtt"] = {"topics": {"#": "t"}, "retained": {"address": "kept", "stores": ["r"], "user": "alice"}}
    document["routers"]["a"]["mqtt"] = free_port()
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    access = ("--url", guarded.url[0], "--ca", str(guarded.pki.ca), "--user", "alice")
    environment = {**os.environ, "ONCEWAY_PASSWORD": PASSWORD, "ONCEWAY_BUS_ROOT_KEY": "root"}

    async def start(*arguments: str) -> asyncio.subprocess.Process:
        program = [sys.executable, "-m", "onceway", *arguments]
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(*program, stdout=pipe, stderr=pipe, env=environment)

    async def done(*arguments: str) -> tuple[int | None, str]:
        """Its exit code and what it has printed, or why it has failed."""
        process = await start(*arguments)
        out, err = await process.communicate()
        return process.returncode, (err if process.returncode else out).decode()

    async def serves(said: str, *arguments: str) -> asyncio.subprocess.Process:
        process = await start(*arguments, *access)
        seen = b""
        while said.encode() not in seen:
            line = await process.stderr.readline()
            assert line, seen
            seen += line
        return process

    async def story() -> None:
        member = ("queue", "length", "q", "--name", "m", "--members", "m", "--data", str(tmp_path))
        bus = ("--data", str(tmp_path / "bus"), "--plain-http", "--listen", str(free_port()))
        serving = await asyncio.gather(
            serves("listening", "pipe", "serve", str(path), "--data", str(tmp_path / "pipe")),
            serves("listening", "bus", "serve", *bus),
            serves("listening", "metadata", "serve", "--name", "e", "--listen", str(free_port())),
            serves("topics in", "retained", "serve", str(path), "--store", "r", "--data", str(tmp_path / "kept")),
        )
        try:
            assert await done(*member, *access) == (0, "0\n")
            code, told = await done(*member, *access[:4], "--connect-timeout", "5")
            assert code == 1, told
            assert "the server does not offer ANONYMOUS" in told
            assert await done("pipe", "push", "jobs", "one", *access) == (0, "")
            assert await done("pipe", "pull", "jobs", *access) == (0, "one\n")
            assert await done("pipe", "reset", "jobs", *access) == (0, "1\n")
        finally:
            for process in serving:
                process.terminate()
            await asyncio.gather(*(process.communicate() for process in serving))

    guarded.play(story)
