"""Who goes where there are too many strangers."""

from __future__ import annotations

from router.links.crowd import Crowd


def test_the_oldest_of_the_network_that_has_most_goes_first() -> None:
    crowd: Crowd[str] = Crowd()
    for one, address in (("a", "10.0.0.1:1"), ("b", "10.0.0.2:1"), ("c", "10.0.0.2:2"), ("d", "2001:db8::1:1")):
        crowd.add(one, address)
    assert crowd.next_to_go == "b"
    crowd.add("e", "2001:db8::2:1")  # of the same customer
    crowd.add("f", "2001:db8::3:1")
    assert crowd.next_to_go == "d"
    crowd.remove("d")
    crowd.remove("d")
    assert [*crowd] == ["a", "b", "c", "e", "f"]
    for each in ("e", "f", "b", "c"):
        crowd.remove(each)
    assert crowd.next_to_go == "a"
    crowd.remove("a")
    assert len(crowd) == 0
    assert not crowd._in_order
