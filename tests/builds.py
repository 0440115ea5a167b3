"""Whether these tests meet compiled modules (`make compiled`)."""

import router.router

COMPILED = not router.router.__file__.endswith(".py")
STAND_INS = "a compiled class takes no stand-in in place of another compiled class"
