"""Subscribes to a topic of an event bus, and prints the events that it is called back with, each once.

    ONCEWAY_BUS_ROOT_KEY=... python examples/bus/receive.py [URL] [TOPIC] [COUNT]

The bus must take call-backs without TLS: onceway bus serve --plain-http --http-callbacks
--callback-allow localhost. What was taken is kept in a
file, so that a batch that comes again after a restart is recognised. A topic is there once something was pushed to it.
"""

import json
import os
import sys
import tempfile
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path
from shelve import open as open_shelf
from wsgiref.simple_server import WSGIRequestHandler, make_server

from onceway.bus import Drain

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8443"
TOPIC = sys.argv[2] if len(sys.argv) > 2 else "orders"
COUNT = int(sys.argv[3]) if len(sys.argv) > 3 else 3
seen = []


class Quiet(WSGIRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


def post(path: str, user: str, body: dict) -> bytes:
    headers = {"Authorization": "Basic " + b64encode(f"{user}:".encode()).decode()}
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.read()
    except urllib.error.HTTPError as error:
        sys.exit(f"HTTP {error.code}: {error.read().decode()}")


def handle(events: list[dict]) -> None:
    for event in events:
        print(event["type"], event["url"], event.get("data"), flush=True)
    seen.extend(events)


with tempfile.TemporaryDirectory() as kept, open_shelf(str(Path(kept) / "taken")) as taken:
    drain = Drain(handle, token="secret", path="/events", taken=taken)
    with make_server("127.0.0.1", 0, drain.wsgi, handler_class=Quiet) as server:
        token = json.loads(post("/api_tokens", os.environ["ONCEWAY_BUS_ROOT_KEY"], {"name": "mail"}))["token"]
        callback = f"http://127.0.0.1:{server.server_port}/events"
        post("/subscription", token, {"topics": [TOPIC], "callback": callback, "uuid": "secret", "timeout": 50})
        print("subscribed", flush=True)
        while len(seen) < COUNT:
            server.handle_request()
