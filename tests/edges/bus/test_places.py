"""Where the bus may call back: addresses of the Internet, and those inside that its operator allows."""

from __future__ import annotations

import socket
from ipaddress import ip_address

import pytest

from edges.bus import places as places_module
from edges.bus.places import NotAllowed, Places, read_network
from edges.bus.sender import Sender

INSIDE = ["127.0.0.1", "127.8.8.8", "::1", "0.0.0.0", "::", "169.254.169.254", "fe80::1", "10.0.0.1", "172.16.3.4",
          "192.168.1.1", "100.64.0.1", "fd00::1", "224.0.0.1", "ff02::1", "255.255.255.255", "::ffff:127.0.0.1",
          "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::1", "64:ff9b:1::a00:1", "fec0::1",
          "::a9fe:a9fe"]  # fmt: skip


@pytest.mark.parametrize("address", INSIDE)
def test_addresses_inside_are_called_only_where_they_are_allowed(address: str) -> None:
    meant = ip_address(address)
    assert not Places().may(meant, 443)
    url = f"https://[{address}]/x" if ":" in address else f"https://{address}/x"
    with pytest.raises(NotAllowed):
        Places().check(url)
    allowed = Places((*read_network("0.0.0.0/0"), *read_network("::/0")))
    assert allowed.may(meant, 443)
    assert not allowed.check(url)


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST.", "a.localhost", "127.1", "0x7f.1", "2130706433", "017700000001"]
)
def test_other_forms_of_the_loopback_address_are_seen(host: str) -> None:
    with pytest.raises(NotAllowed):
        Places().check(f"https://{host}:8080/x")
    assert not Places(read_network("localhost")).check(f"https://{host}/x")


@pytest.mark.parametrize("address", ["8.8.8.8", "2001:4860:4860::8888"])
def test_addresses_of_the_internet_are_called_but_for_this_machines(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Places().may(ip_address(address), 443)
    monkeypatch.setattr(places_module, "_of_this_machine", lambda found: found == ip_address(address))
    assert not Places().may(ip_address(address), 443)


OWN = Places(
    own=frozenset(
        [("Router.example", 5671), ("8.8.8.8", 8443), ("bücher.example.", 443), ("2001:4860:4860:0::8888", 5671)]
    )
)


@pytest.mark.parametrize(
    "place",
    ["router.example:5671", "ROUTER.EXAMPLE:5671", "router.example.:5671", "router。example:5671", "ｒouter.example:5671",
     "router.example:05671", "8.8.8.8:8443", "8.8.8.8.:8443", "134744072:8443", "8.8.2056:8443", "0x8.010.8.8:8443",
     "８.8.8.8:8443", "[::ffff:8.8.8.8]:8443", "[64:ff9b::808:808]:8443", "xn--bcher-kva.example", "BÜCHER.example:443",
     "[2001:4860:4860::8888]:5671", "[2001:4860:4860::0.0.136.136]:5671"],
)  # fmt: skip
def test_listeners_of_the_product_are_no_call_backs_however_they_are_written(place: str) -> None:
    with pytest.raises(NotAllowed):
        OWN.check(f"https://{place}/x")


@pytest.mark.parametrize("place", ["router.example", "router.example:5672", "8.8.8.8", "a.router.example:5671"])
def test_other_ports_and_hosts_are_none_of_the_products(place: str) -> None:
    assert not OWN.check(f"https://{place}/x")


def test_a_name_that_means_a_listener_of_the_product_is_not_connected() -> None:
    assert not OWN.may(ip_address("8.8.8.8"), 8443)
    assert OWN.may(ip_address("8.8.8.8"), 443)


def test_a_trial_takes_this_machines_call_backs_that_show_that_they_are_such() -> None:
    places = Places(trial=True, own=frozenset([("127.0.0.1", 5672)]))
    for url in ("http://127.0.0.1:1/x", "http://localhost:1/x", "http://[::1]:1/", "http://[::ffff:7f00:1]:1/x"):
        assert places.check(url)
    for url in ("http://127.0.0.1:5672/x", "http://10.0.0.1/", "http://169.254.169.254/latest"):
        with pytest.raises(NotAllowed):
            places.check(url)


@pytest.mark.parametrize("trial", [False, True])
async def test_the_address_that_is_connected_is_the_one_that_is_looked_at(
    trial: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name means the loopback address when it is called: nothing is connected."""
    with socket.create_server(("127.0.0.1", 0)) as there:
        there.setblocking(False)
        port = there.getsockname()[1]

        async def inwards(*arguments: object, **named: object) -> list[dict[str, object]]:
            return [
                {
                    "hostname": "a.example",
                    "host": "127.0.0.1",
                    "port": port,
                    "family": socket.AF_INET,
                    "proto": 0,
                    "flags": 0,
                }
            ]

        monkeypatch.setattr("aiohttp.resolver.ThreadedResolver.resolve", inwards)
        sender = Sender(Places(trial=trial))
        found = await sender.send(f"http://a.example:{port}/x", "u", b"[]", "0")
        again = await sender.send(f"http://10.0.0.1:{port}/x", "u", b"[]", "0")
        await sender.close()
        assert (found.kind, again.kind) == ("not allowed", "not allowed")
        with pytest.raises(BlockingIOError):
            there.accept()
