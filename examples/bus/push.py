"""Pushes events to an event bus over HTTP: a client, a topic of its own, and what has happened to orders.

    ONCEWAY_BUS_ROOT_KEY=... python examples/bus/push.py [URL] [TOPIC]

Needs nothing of Onceway. A push that is not answered with 204 is pushed again.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request
from base64 import b64encode

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8443"
TOPIC = sys.argv[2] if len(sys.argv) > 2 else "orders"


def ask(path: str, user: str, body: dict | None = None) -> bytes:
    """POSTs the body, or GETs."""
    headers = {"Authorization": "Basic " + b64encode(f"{user}:".encode()).decode()}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(URL + path, data, headers), timeout=30) as response:
        return response.read()


def push(token: str, event: dict) -> None:
    while True:
        try:
            ask(f"/topics/{TOPIC}", token, event)
            return
        except urllib.error.HTTPError as error:
            if error.code != 503:
                sys.exit(f"HTTP {error.code}: {error.read().decode()}")
        time.sleep(1)


root = os.environ["ONCEWAY_BUS_ROOT_KEY"]
known = [each["token"] for each in json.loads(ask("/api_tokens", root) or "[]") if each["name"] == "shop"]
token = known[0] if known else json.loads(ask("/api_tokens", root, {"name": "shop"}))["token"]
push(token, {"type": "noop", "url": "https://shop.example/orders"})  # the topic is there
print("the topic is there, press return to push", flush=True)
sys.stdin.readline()
for number in range(3):
    push(token, {"type": "create", "url": f"https://shop.example/orders/{number}", "data": {"total": 10 * number}})
print("pushed 3 events")
