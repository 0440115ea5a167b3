"""Makes docs/interop.md from a run's JUnit XML: `python -m tests.interop.page RUN.xml`; `make interop` calls it."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from typing import Final

PASSED, SKIPPED, FAILED = "passed", "skipped", "failed"

PROTON, RHEA, PROMISE = "python-qpid-proton", "rhea", "rhea-promise"
CORE, AZURE, C, RABBIT = (
    "@azure/core-amqp",
    "azure-servicebus (pure Python)",
    "qpid-proton C (Debian)",
    "rabbitmq-amqp-python-client",
)
CLIENTS: Final = (PROTON, C, RHEA, PROMISE, CORE, AZURE, RABBIT)
DOES: Final = {PROMISE: "promise", CORE: "core", AZURE: "azure", C: "c"}
"""What test_clients.py names those that only `make interop` installs."""


def case(test: str, client: str) -> str:
    """The test's case with this client: `test[way]` has it beside its way."""
    return f"{test[:-1]}-{client}]" if test.endswith("]") else f"{test}[{client}]"


def same(test: str, *, but: Mapping[str, str] | None = None) -> dict[str, tuple[str, ...]]:
    """The cells of these clients: `test` with each, or the reason why there is none."""
    reasons = but or {}
    return {
        client: (f"- {reasons[client]}",) if client in reasons else (case(test, name),) for client, name in DOES.items()
    }


NO_JOURNAL: Final = (
    "- the client keeps nothing that it could go on from: what it sends again may come twice (the row above)"
)
ROWS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "connect, publish and subscribe, through three routers": {
        **same("test_modes_that_differ[unsettled]"),
        AZURE: ("test_goes_on_elsewhere_when_its_router_dies[azure]", "test_selects[azure]"),
        PROTON: ("test_simple_send_reaches_simple_recv", "test_blocking_send_reaches_blocking_receive"),
        RHEA: ("test_rhea_reaches_rhea_with_every_body_type", "test_rhea_reaches_proton"),
    },
    "SASL: each mechanism that the client has, beside ANONYMOUS, in TLS": {
        **same(
            "test_each_mechanism", but={CORE: "it sets no password and no certificate: `test_has_no[core-password]`"}
        ),
        PROTON: ("test_each_mechanism_and_each_reason_to_be_refused[proton]",),
        RHEA: ("test_each_mechanism_and_each_reason_to_be_refused[rhea]",),
    },
    "TLS": {
        **same("test_through[amqps]"),
        PROTON: ("test_each_mechanism_and_each_reason_to_be_refused[proton]",),
        RHEA: ("test_each_mechanism_and_each_reason_to_be_refused[rhea]",),
    },
    "every type": {
        PROTON: ("test_every_body_type_arrives_as_it_was_sent", "test_every_other_section_arrives_as_it_was_sent"),
        RHEA: (
            "test_rhea_reaches_rhea_with_every_body_type",
            "test_proton_reaches_rhea_with_every_body_type",
            "test_rhea_reaches_proton_byte_by_byte_with_every_body_type",
        ),
        PROMISE: ("test_every_type[promise-promise]",),
        CORE: ("- its encodings are rhea's",),
        AZURE: ("test_every_type[azure-azure]",),
        C: ("test_every_type[c-c]",),
    },
    "settle modes that differ": {
        **same("test_modes_that_differ[second]"),
        PROTON: ("test_a_publisher_and_a_subscriber_need_not_agree_on_the_mode",),
        RHEA: ("- its program is rhea-promise's, whose links are rhea's",),
    },
    "messages of 10 MB": {
        **same("test_large"),
        AZURE: ("test_azure_sends_large_ones_and_takes_a_mebibyte",),
        PROTON: ("test_ten_megabytes_arrive_between_small_messages",),
        RHEA: ("test_ten_megabytes_from_rhea_to_rhea",),
    },
    "queues": {
        **same("", but=dict.fromkeys(DOES, "to the client the links are those of a topic")),
        AZURE: ("test_azure_consumes_of_a_queue_what_it_takes",),
        PROTON: (
            "test_outcomes_of_a_consumer",
            "test_what_a_consumer_leaves_undecided_goes_to_another",
            "test_a_browser_sees_what_waits_at_all_routers_and_takes_nothing",
        ),
        RHEA: ("test_rhea_publishes_and_consumers_at_two_routers_share",),
    },
    "anonymous terminus": {
        **same("test_sends_to_several_addresses"),
        PROTON: ("test_proton_sends_to_several_addresses_and_is_told_of_each",),
        RHEA: ("test_rhea_sends_to_several_addresses_and_is_told_of_each",),
    },
    "dynamic source, request and reply": {
        **same("test_asks_and_is_answered"),
        PROTON: ("test_proton_asks_and_is_answered",),
        RHEA: ("test_rhea_asks_and_proton_answers",),
    },
    "recovery: goes on at another router, at least once": {
        **same("test_goes_on_elsewhere_when_its_router_dies"),
        PROTON: ("test_two_routers_are_killed_at_once[proton]",),
        RHEA: ("test_nothing_is_lost_repeated_or_reordered_when_everything_dies",),
    },
    "recovery: exactly once while routers are killed": {
        **dict.fromkeys(DOES, (NO_JOURNAL,)),
        PROTON: ("test_two_routers_are_killed_at_once[proton]",),
        RHEA: ("test_nothing_is_lost_repeated_or_reordered_when_everything_dies",),
    },
    "drain": {
        **same("test_drains", but={AZURE: "it never drains: `test_has_no[azure-drain]`"}),
        PROTON: ("test_proton_drains",),
        RHEA: ("test_rhea_drains_selects_and_reads_where_else_it_may_connect",),
    },
    "filters": {
        **same("test_selects"),
        PROTON: ("test_proton_selects",),
        RHEA: ("test_rhea_drains_selects_and_reads_where_else_it_may_connect",),
    },
    "failover list": {
        **same("test_reads_where_else_it_may_connect"),
        PROTON: ("test_proton_reads_where_else_it_may_connect",),
        RHEA: ("test_rhea_drains_selects_and_reads_where_else_it_may_connect",),
    },
    "`$management`": {
        **dict.fromkeys(DOES, ("- to the client a request as in the row above",)),
        PROTON: ("test_entities_and_answers_at_another_router", "test_who_may_read_reads_and_who_may_act_deletes"),
        RHEA: ("- to the client a request as in the row above",),
        CORE: ("test_azures_core_amqp_asks_the_management_node",),
    },
    "WebSocket": {
        **same("test_through[wss]", but={C: "qpid-proton has none: `test_has_no[c-websocket]`"}),
        PROTON: ("- qpid-proton has none: `test_has_no[c-websocket]`",),
        RHEA: (
            "test_rhea_reaches_rhea_in_websockets_with_every_body_type",
            "test_rhea_in_a_browser_publishes_and_subscribes_exactly_once_while_its_router_dies",
        ),
    },
}

MATRIX: Final = {PROTON: "proton", RHEA: "rhea", PROMISE: "promise", AZURE: "azure", C: "c"}

PROGRAMS: Final[Mapping[str, tuple[str, ...]]] = {
    "mosquitto 2.0 (Debian): [a bridge](mqtt.md#bridges)": (
        "test_bridge_out[mqttv311]", "test_bridge_out[mqttv50]", "test_bridge_in[mqttv311]", "test_bridge_in[mqttv50]",
        "test_bridge_both[mqttv311]", "test_bridge_both[mqttv50]",
    ),
    "routemaster-client 3.2.3, routemaster-drain 3.7.2 (RubyGems): [a bus](event-bus.md#coming-from-routemaster)": (
        "test_routemasters_client_and_drain", "test_routemasters_command_line",
    ),
    "[oslo.messaging](clients.md#openstack) 14.9.3 with pyngus: call, cast, fanout, notify": (
        "test_openstack_calls_casts_fans_out_and_notifies",
    ),
    "the same, while each router in its turn is killed": ("test_openstack_goes_on_elsewhere_when_routers_are_killed",),
    "[azure-eventhub](clients.md#azures-packages-for-python) 5.15.1 by its public API: send, receive": (
        "test_public_api_sends[eventhub]", "test_public_api_receives[eventhub]",
    ),
    "[azure-servicebus](clients.md#azures-packages-for-python) 7.14.3 and 7.15.0 by its public API: send, receive": (
        "test_public_api_sends[servicebus]", "test_public_api_receives[servicebus]",
        "test_public_api_sends[servicebus715]", "test_public_api_receives[servicebus715]",
    ),
}  # fmt: skip

HEAD: Final = """\
# Clients of others

`make interop` makes this page. It installs each client with pip, npm, apt-get or gem, runs the tests with them, and
writes down what they have shown. A cell is a test, or the reason why there is none. [What each client
needs](clients.md) is on a page of its own. Qpid JMS is missing: neither Debian nor PyPI nor npm has it, and we do not
reach Maven Central.

"""

TYPES: Final = """
## Every type, from each client to each other

Each sends every AMQP type that it and the receiver have a word for, with the values at which encodings change, through
three routers. Each octet arrives as it was sent, and the receiver reads each value as it was meant. What a client has
no word for stands in `test_types.py`. Debian's C programs send integers in maps only and do not say their octets, and
azure-servicebus keeps types inside of lists. @azure/core-amqp has neither senders nor receivers of its own.

"""

THEIRS: Final = """
## Programs of others

Each as it is released, mosquitto with its defaults.

"""


def results(path: str) -> dict[str, str]:
    """By test, with its parameters and without: the worst of its cases."""
    found: dict[str, str] = {}
    worst = (PASSED, SKIPPED, FAILED)
    for case in ET.parse(path).iter("testcase"):
        children = {child.tag for child in case}
        result = FAILED if children & {"failure", "error"} else SKIPPED if "skipped" in children else PASSED
        name = case.attrib["name"]
        for each in {name, name.partition("[")[0]}:
            found[each] = max(found.get(each, PASSED), result, key=worst.index)
    return found


def page(found: Mapping[str, str]) -> str:
    rabbit = {RABBIT: ("- refuses every server but RabbitMQ: `test_rabbitmqs_client_takes_rabbitmq_only`",)}
    rows = [[row, *(cell(found, (rabbit | cells)[client]) for client in CLIENTS)] for row, cells in ROWS.items()]
    types = [
        [f"from {sender}", *(cell(found, [f"test_every_type[{here}-{there}]"]) for there in MATRIX.values())]
        for sender, here in MATRIX.items()
    ]
    matrix = table([f"to {client}" for client in MATRIX], types)
    return HEAD + table(CLIENTS, rows) + TYPES + matrix + programs(found)


def programs(found: Mapping[str, str]) -> str:
    return THEIRS + table(["what has passed"], [[name, cell(found, tests)] for name, tests in PROGRAMS.items()])


def cell(found: Mapping[str, str], names: Sequence[str]) -> str:
    """What each test has shown; after a dash: the reason why there is none."""
    reasons = [name[2:] for name in names if name.startswith("- ")]
    if reasons:
        return "<br>".join(reasons)
    results = [(name, found.get(name, "not run")) for name in names]
    return "<br>".join(f"`{name}`" if result == PASSED else f"**{result}**: {name}" for name, result in results)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [["", *columns], ["---"] * (len(columns) + 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    print(page(results(sys.argv[1])), end="")
