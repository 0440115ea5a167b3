"""Answers to requests of HTTP."""

from __future__ import annotations

from functools import partial
from typing import Final

from aiohttp import web

from router.json_text import write_json

json_response: Final = partial(web.json_response, dumps=write_json)
"""As aiohttp's, in JSON that every parser takes."""
