#!/usr/bin/env bash
# mypyc: a slice of bytes whose start lies behind its stop raises SystemError in compiled code.
#
# Python's reference, "Common Sequence Operations": if i is greater than or equal to j, the slice is empty. Interpreted,
# b"abcdef"[4:2] is b"". Compiled, with bounds that are variables and a value that mypy knows to be bytes, it raises
# SystemError ("Negative size passed to PyBytes_FromStringAndSize"). The same slice of a str or a list is empty in both,
# and so is a slice of bytes that begins behind the end. So a program with good tests fails only where it is compiled.
# Needs a C compiler.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "mypy[mypyc]==2.4.1" setuptools
cd "$folder"

cat >slices.py <<'PYTHON'
from typing import List


def of_bytes(value: bytes, start: int, stop: int) -> bytes:
    return value[start:stop]


def of_str(value: str, start: int, stop: int) -> str:
    return value[start:stop]


def of_list(value: List[int], start: int, stop: int) -> List[int]:
    return value[start:stop]
PYTHON

cat >ask.py <<'PYTHON'
import slices


def said(function, *arguments):
    try:
        return repr(function(*arguments))
    except SystemError as error:
        return f"SystemError: {error}"


print("compiled" if slices.__file__.endswith(".so") else "interpreted")
print("bytes  [4:2]", said(slices.of_bytes, b"abcdef", 4, 2))
print("bytes [9:12]", said(slices.of_bytes, b"abcdef", 9, 12))
print("str    [4:2]", said(slices.of_str, "abcdef", 4, 2))
print("list   [4:2]", said(slices.of_list, [1, 2, 3, 4, 5, 6], 4, 2))
PYTHON

venv/bin/python --version
venv/bin/mypy --version
venv/bin/python ask.py | tee interpreted.txt
venv/bin/mypyc slices.py >build.log 2>&1 || { cat build.log; exit 2; }
venv/bin/python ask.py | tee compiled.txt

diff interpreted.txt - <<'TEXT'
interpreted
bytes  [4:2] b''
bytes [9:12] b''
str    [4:2] ''
list   [4:2] []
TEXT
diff compiled.txt - <<'TEXT'
compiled
bytes  [4:2] SystemError: Negative size passed to PyBytes_FromStringAndSize
bytes [9:12] b''
str    [4:2] ''
list   [4:2] []
TEXT
echo "as described"
