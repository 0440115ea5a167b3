"""Whether these tests meet compiled modules (`make compiled`)."""

import pytest

import router.router

COMPILED = not router.router.__file__.endswith(".py")
STAND_INS = "compiled classes and functions call each other directly, and take no stand-ins"

puts_stand_ins = pytest.mark.skipif(COMPILED, reason=STAND_INS)
