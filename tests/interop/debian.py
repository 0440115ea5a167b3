"""Programs of Debian, installed or unpacked by `make interop`, and Ruby's gems that it has fetched."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

INTEROP = Path(os.environ.get("INTEROP", ""))


def found(program: str) -> tuple[str, dict[str, str]] | None:
    """(its path, the environment that it needs); None: there is no such program."""
    environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    root = (INTEROP / "deb/root").absolute()
    if "INTEROP" in os.environ and root.exists():
        libraries = list(root.glob("usr/lib/*-linux-*"))
        ruby = [
            each for base in (root / "usr/lib/ruby", *(each / "ruby" for each in libraries)) for each in _ruby(base)
        ]
        gems = [*root.glob("usr/share/rubygems-integration/*"), *root.glob("usr/lib/*/rubygems-integration/*")]
        named = {"LD_LIBRARY_PATH": libraries, "RUBYLIB": ruby, "GEM_PATH": gems}
        environment |= {name: ":".join(map(str, paths)) for name, paths in named.items()}
        environment["PATH"] = f"{root}/usr/bin:{root}/usr/sbin:{environment['PATH']}"
    path = shutil.which(program, path=environment["PATH"])
    return None if path is None else (path, environment)


def gems(*names: str) -> list[Path] | None:
    """Where the code of these gems is; None: not all of them are there."""
    found = [each for name in names for each in INTEROP.glob(f"gems/{name}-[0-9]*/")]
    return [each / "lib" if (each / "lib").exists() else each for each in found] if len(found) == len(names) else None


def _ruby(base: Path) -> list[Path]:
    return [base / "vendor_ruby", *base.glob("vendor_ruby/[0-9]*"), *base.glob("[0-9]*")]


if __name__ == "__main__":  # `python -m tests.interop.debian gem …`: a program of Ruby
    here = found("ruby")
    sys.exit("no ruby" if here is None else subprocess.call([here[0], "-S", *sys.argv[1:]], env=here[1]))
