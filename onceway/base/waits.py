"""Every wait of the product: a row for each thing that is waited for, with what ends it and by what that is told.

Whoever waits names the row where it waits, and takes the bound from it:

    async with asyncio.timeout(waits.CONNECT.s): ...
    line = await waits.CHILD_OUTPUT(stream.readline())
    self._turn = waits.OWN_WORK(asyncio.Lock())

A row hands on what it is called with, so a wait whose end is somebody else's to bound is named at no more than a call;
a function that messages go through is decorated with it, and pays nothing. `python -m scripts.waits` walks the syntax
of all modules for waits without a row. What the routers' cores wait for is in `onceway.operate.waits`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, TypeVar

T = TypeVar("T")
METRIC: Final = "onceway_waits_ended_total"


@dataclass(frozen=True, slots=True)
class Wait:
    """One row.

    Attributes:
        what: What is waited for.
        bound: Seconds; or in words what ends it, and why that is enough.
        then: What happens at the bound.
        told: The metric, the line of the log or the error by which it is told.
        keys: The keys of the topology file, or the options of commands, that set the bound.
        name: The row's constant, in small letters.
    """

    what: str
    bound: float | str
    then: str
    told: str
    keys: tuple[str, ...] = ()
    name: str = field(default="", init=False)

    def __call__(self, waited: T, /) -> T:
        return waited

    @property
    def s(self) -> float:
        """The bound, of a row that has seconds."""
        assert not isinstance(self.bound, str), self.name
        return self.bound

    def ended(self) -> None:
        """It has ended by its bound: of rows that are told by METRIC."""
        ENDED[self.name] += 1


ENDED: Final[Counter[str]] = Counter()
"""How often a wait of this process has ended by its bound, by the row's name."""

CALLER: Final = Wait("whatever the caller waits for", "the caller's row", "", "")
"""Functions that name it are waits of their callers."""

NOTHING: Final = "nothing: it is meant to wait"
OWN: Final = "an error of this process ends it: each task's end is looked at"

# --- in every process

STOP: Final = Wait("the signal, or the call, that ends the program", NOTHING, "the program ends", "its last line")
IDLE: Final = Wait("work for a task or a thread that has none", NOTHING, "it works", OWN)
PAUSE: Final = Wait("the time of the next look, or the end", "the time of the next look", "it looks", OWN)
OWN_WORK: Final = Wait(
    "another task or thread of this process", "the rows of what that one waits for", "it raises what has ended it", OWN
)
MUTEX: Final = Wait(
    "another thread that changes a few variables", "the others do nothing but that while they have the lock", "", OWN
)
DISK: Final = Wait(
    "the disk, in a thread of its own or at the start",
    "the kernel's: no call can be taken back from a disk that does not answer",
    "the loop goes on; what must be on the disk first waits",
    "what waits for it; a process that stops is killed by whoever stops it (STOP_ROUTER, STOP_STORE)",
)
RESOLVER: Final = Wait(
    "the addresses of a name", "the system's resolver (resolv.conf: 5 s, twice, for each server)",
    "there are none", "the error of whoever connects, or listens",
)  # fmt: skip
LISTEN: Final = Wait(
    "a port of this host", "the kernel answers at once", "the port is in use", "the error at the start"
)
ACCEPT: Final = Wait("the next connection", NOTHING, "it is served", "the counts of connections")
STDIN: Final = Wait("a line of standard input", "the user decides", "", "the prompt")
SPAWN: Final = Wait(
    "the kernel, for a new process", "the kernel answers at once", "it could not be started", "the error"
)
CHILD: Final = Wait(
    "the end of a process that is to run",
    NOTHING,
    "it is started again, or the program ends",
    "`router_ended`, `store_ended`",
)
CHILD_OUTPUT: Final = Wait("what a process says", "its end", "its end is handled", "`router_ended`, `store_ended`")
KILLED: Final = Wait(
    "the end of a process that was killed",
    "the kernel's: SIGKILL cannot be refused",
    "",
    "`router_killed`, `store_killed`",
)
APPLICATION: Final = Wait(
    "a function of the application that uses this library",
    "the application's own",
    "it raises",
    "the application's log",
)

# --- HTTP, of every listener

HTTP_TLS: Final = Wait("the TLS handshake of a connection for HTTP", 5.0, "the connection is closed", METRIC)
HTTP_TURN: Final = Wait(
    "its turn to begin with that: one handshake in a turn of the loop",
    "the number of strangers: above it the oldest is closed", "its connection is closed", "the client's error",
)  # fmt: skip
HTTP_BODY: Final = Wait("the rest of a request", 30.0, "408 Request Timeout", METRIC)
HTTP_ANSWER: Final = Wait("a reader of the console, to take a part of its stream", 30.0, "its connection ends", METRIC)
HTTP_STOP: Final = Wait("answers that are under way when a listener stops", 1.0, "they are cut", "the client's error")

# --- a router

PASSWORD: Final = Wait(
    "a thread that compares a password", "`handshake_timeout`", "the client is refused",
    '`onceway_limit_reached_total{limit="handshake_timeout"}`', ("handshake_timeout",),
)  # fmt: skip
TOKEN_KEYS: Final = Wait("the keys of tokens from their URL", 5.0, "the old ones stay", METRIC)
TRUNK_DIAL: Final = Wait(
    "a neighbour, to take a connection", "some round trips, as they were seen: 0.25 to 5 s",
    "its next address is tried", f"{METRIC}, `neighbour_unreachable`",
)  # fmt: skip
TRUNK: Final = Wait(
    "the end of a connection to a neighbour", "`dead_after`: a neighbour without heartbeats is lost",
    "it is dialled again", "`neighbour_lost`", ("dead_after",),
)  # fmt: skip
DRAIN: Final = Wait(
    "the clients of a router that is drained", "the drain's time, and 2 s", "they are closed",
    f"{METRIC}, `wait_ended`, `drain_cut`", ("onceway drain --timeout",),
)  # fmt: skip
HANDOVER: Final = Wait(
    "the subscriptions of a router that stops, to be back elsewhere", 3.0, "it goes on to stop", "`wait_ended`"
)
GOODBYE: Final = Wait(
    "the last frames of a router that stops, to be written", 2.0, "its connections are cut", "`wait_ended`"
)
SUMS: Final = Wait(
    "sums for a page of the admin listener that are being made", 1.0, "the page has the last ones, with their age",
    "`sums_age_s`",
)  # fmt: skip

# --- processes of one host

CONTROL: Final = Wait("a process of this host, at its control socket", 10.0, "`NotRunning`", "the command's error")
CONTROL_ALIVE: Final = Wait(
    "the kernel, whether anybody listens at a control socket", 1.0, "nobody does", "the command's line"
)
RELOAD: Final = Wait(
    "a supervisor's answer to a changed file: it has drained the routers that it stops", 30.0, "`NotRunning`",
    "the command's error",
)  # fmt: skip
RELOAD_ROUTER: Final = Wait(
    "a router's answer to its supervisor about a changed file", 10.0, "it is reported", "`onceway reload`"
)
RELOADS: Final = Wait(
    "another reload of the same supervisor",
    "the bounds of that one: RELOAD_ROUTER, STOP_ROUTER",
    "",
    "`onceway reload`",
)
CONTROL_LOCK: Final = Wait(
    "another process that makes a control socket in the same directory", 10.0, "the start ends with an error",
    "the error, which names the process",
)  # fmt: skip
USERS_LOCK: Final = Wait(
    "another command that changes the same users", 10.0, "the command ends with an error",
    "the error, which names the process",
)  # fmt: skip
PROBE: Final = Wait("an admin listener's answer", 2.0, "it counts as without an answer", "the command's line")
PROBE_ALL: Final = Wait(
    "the same, where all routers are asked: one that hangs holds up no other", 1.0, "the same", "the command's line"
)
FRESH: Final = Wait(
    "a router that listens, before others are started fresh beside it", 10.0, "it counts as up", "the error"
)
LISTENS: Final = Wait("a port, to take a connection", 1.0, "nobody listens there", "the command's line")
STOP_ROUTER: Final = Wait(
    "a router that was told to stop: more than its own drain", 18.0, "it is killed", "`router_killed`"
)
STOP_STORE: Final = Wait("a store that was told to stop", 18.0, "it is killed", "`store_killed`")
START_ROUTER: Final = Wait("the first answer of a router that was started", 60.0, "it is killed", "`router_hangs`")
TURN: Final = Wait(
    "the end of a turn of a router's event loop", 10.0, "the router is killed", "`router_hangs`",
    ("onceway up --watchdog",),
)  # fmt: skip
ABORT: Final = Wait("a router that hung and was aborted, to note where", 2.0, "it is killed", "`router_hangs`")
CONVERGED: Final = Wait("the routers that were started, to be one network", "the caller's", "", "`onceway status`")
FORK: Final = Wait(
    "the process that forks routers, to answer", 10.0, "the router counts as not started, and is tried again",
    "`router_ended`",
)  # fmt: skip
FORKS_END: Final = Wait("the same, to end when it is told", 5.0, "it is killed", "`router_killed`")

# --- commands and the demonstration

LEAVE: Final = Wait(
    "outcomes, after Ctrl-C or before a publisher ends", 10.0, "the command ends", "its line: so many have no outcome"
)
OPENSSL: Final = Wait(
    "openssl, to make a certificate of the demonstration", 60.0, "the demonstration ends", "its error"
)
JAVA: Final = Wait("java, to say its version", 30.0, "it counts as no Java", "the error")
CLIENT_UNDER_TEST: Final = Wait(
    "the client that `onceway conformance` tests: each frame and line that is due", 10.0,
    "the check has failed", "its line: what did not come", ("--patience",),
)  # fmt: skip
DEMO_START: Final = Wait("the network of the demonstration", 120.0, "the demonstration ends", "its error")
DEMO_SPARK: Final = Wait("Spark, to start or to end in the demonstration", 300.0, "the demonstration ends", "its error")

# --- the client library

CONNECT: Final = Wait(
    "one router, to take a connection", 5.0, "the next router is tried", "the client's report, `no answer within 5 s`"
)
CONNECT_NAMED: Final = Wait(
    "a router that was named by one that is drained", 1.0, "those of the list are tried", "the client's report"
)
FIRST_CONNECTION: Final = Wait(
    "the first connection of a client", "`connect_timeout_s`: 30 s", "`ConnectionFailed`",
    "the error, with a reason for each router", ("--connect-timeout",),
)  # fmt: skip
CONNECTION: Final = Wait(
    "the end of a client's connection", "`idle_timeout_s`: a router that says nothing for 16 s is lost",
    "the next router is tried", "the client's report",
)  # fmt: skip
ATTACH: Final = Wait(
    "a router's answer to an attach", "the caller's `timeout_s`; without one a network that recovers is waited for",
    "`AttachTimeout`", "the error",
)  # fmt: skip
OUTCOME: Final = Wait(
    "the outcome of what was published, or room for more",
    "the caller's `timeout_s`; without one the slowest subscriber's `subscription_timeout`",
    "`SendTimeout`; it may still be accepted", "the client's report of whom it waits for, after 5 s",
    ("--timeout",),
)  # fmt: skip
MESSAGE: Final = Wait("a message for a subscriber", "the caller's timeout; its connection has its own bound", "", "")
CLOSING: Final = Wait(
    "outcomes, and the journal, before a client closes", "`close_timeout_s`: 90 s", "it closes without them",
    "the client's report, and the log",
)  # fmt: skip
CALL: Final = Wait(
    "an answer of the client, in another thread (`onceway.sync`)",
    "the caller's `timeout_s`",
    "TimeoutError",
    "the error",
)
CALLS_END: Final = Wait(
    "the calls of other threads, when `onceway.sync` is closed", 1.0, "they are cancelled", "their errors"
)
DETACH: Final = Wait(
    "a router's answer to detach, or to close", 5.0, "the connection ends without it", "no message is lost by it"
)


# --- edges and their stores

STORE: Final = Wait(
    "a store, to write or to read", "as DISK, STORE_DATABASE and STORE_ANSWER: by the kind of the store",
    "what waits for it goes on to wait", "`store_away` of whoever asks it; `onceway_pipe_waiting_records`",
)  # fmt: skip
STORE_FULL: Final = Wait(
    "another process that writes the same file", 5.0, "the store cannot be used", "the error: database is locked"
)
STORE_DATABASE: Final = Wait(
    "PostgreSQL, to answer a statement; a connection is made in 5 s, and lost after 15 s without an answer of its host",
    30.0, "it connects again, and asks again", "`store_away`; the bus's health, and `onceway pipe push`",
)  # fmt: skip
STORE_CONNECT: Final = Wait(
    "the store of another process, to take a connection", 10.0, "it connects again", "`store_away`"
)
STORE_ANSWER: Final = Wait(
    "an answer of the store of another process", "a heartbeat: a connection that is silent for 10 s is lost",
    "it connects and asks again", "`store_away`",
)  # fmt: skip
STORE_HEARTBEAT: Final = Wait("a sign of the other side of such a connection", 10.0, "it is lost", "`store_away`")
STORE_GOODBYE: Final = Wait(
    "answers, when a store of another process is closed", 2.0, "they may be done or not", "`StoreError`"
)
STORE_GROWS: Final = Wait("more in a store", NOTHING, "it is read", OWN)

PIPE_STORE: Final = Wait(
    "a store of a pipe, to answer", 10.0, "the next one is asked", "`onceway pipe pull`: after 1 s, which it waits for"
)
PIPE_FIRST: Final = Wait(
    "the first store of a pipe", "`timeout_s`: 30 s", "`ConnectionFailed`, with a reason for each",
    "the error", ("--connect-timeout",),
)  # fmt: skip
PIPE_RECORDS: Final = Wait(
    "records of a pipe", "its connection: silent for 16 s, it is lost", "the next store", "as PIPE_STORE"
)
PIPE_ASK: Final = Wait("a store of a pipe, before a promotion", 5.0, "the promotion ends", "its error")
PIPE_PROMOTE: Final = Wait("a store that is promoted: it may read the whole pipe", 120.0, "it is reported", "its error")
PIPE_FILL: Final = Wait(
    "another store of a pipe, for what is missing here", 5.0,
    "the log's topic is looked at again: another one may have been promoted", "`pipe_again`",
)  # fmt: skip
PIPE_OTHERS: Final = Wait(
    "the other stores of a pipe", "a promotion, which makes it needless", "`PipeError`", "`pipe_again`"
)
PIPE_WRITING: Final = Wait("the store's other writers", "STORE, PIPE_OTHERS and OUTCOME bound each", "", "as those")
PIPE_LEADS: Final = Wait("to be the primary", NOTHING, "it leads", "`pipe_primary`")
READER_ROOM: Final = Wait(
    "a reader that reads too slowly, or has all",
    "its connection: silent for 16 s, it is lost",
    "it is gone",
    "`client_lost`",
)

BUS_STORE: Final = Wait(
    "the store of a bus, for a request", 20.0, "503: the store does not answer", "the answer, and the pulse"
)
BUS_STOP: Final = Wait(
    "the store, when an edge of the bus stops", 2.0, "the others notice that it is silent", "their log"
)
BUS_REQUESTS: Final = Wait("requests that are under way when the bus stops", 2.0, "they are cut", "the client's error")
BUS_BATCHES: Final = Wait(
    "batches that are under way when the bus stops", 5.0, "they are sent again", "`onceway_bus_queue_events`"
)
BUS_ROLE: Final = Wait(
    "the role to store what comes", "another edge that has it is silent for 3 s", "this one has it", "`bus_roles`"
)
BUS_SPEAKS: Final = Wait(
    "the end of that role", "a beat that is not in the store in time", "another edge may have it", "`bus_again`"
)
BUS_ROW: Final = Wait("another request that changes the same row", "STORE bounds each", "", "as that")
CALLBACK_CONNECT: Final = Wait(
    "a call-back, to take a connection or to show that it is one", 2.0, "it is tried again", "failures of subscriptions"
)
CALLBACK: Final = Wait("a call-back, to take a batch", 20.0, "it is tried again", "failures of subscriptions")

CACHE_END: Final = Wait("readers of a cache, when its writer ends", 5.0, "they notice that it is silent", "their state")
EDGE_LEAVE: Final = Wait(
    "the network, when an edge or a member leaves", 1.0, "the others notice that it is silent", "their log"
)
CACHE_SAMPLE: Final = Wait("a sample", "the caller's `timeout_s`", "`TimeoutError`", "itself")
MEMBERS: Final = Wait(
    "members of a queue", "the caller's `timeout_s`", "`TimeoutError`", "itself", ("--connect-timeout",)
)
QUEUE: Final = Wait(
    "the other members' word about an element", "the caller's own; a member that is silent is left out",
    "", "`onceway queue`: the view of who is there",
)  # fmt: skip

METADATA_JOIN: Final = Wait(
    "what other edges know, at the start", "those that are silent for 12 s have gone", "it starts", "its log"
)
METADATA_LEAVE: Final = Wait("other edges, to hear that one leaves", 2.0, "they notice that it is silent", "their log")
METADATA_READER: Final = Wait(
    "clients that do not read", "`--stall`: 30 s", "they are disconnected", "`client_too_slow`", ("--stall",)
)
METADATA_CONNECT: Final = Wait("a metadata edge, to take a client", 10.0, "`MetadataError`", "the error")
METADATA: Final = Wait(
    "what a metadata edge says, or takes",
    "TCP: a host that is silent is lost after 2 minutes, or 15 where it was sent something",
    "`MetadataError`",
    "the error",
)


# --- Spark's source and sink

INGEST_LINES: Final = Wait(
    "a line of an ingest", "30 s, and the wait for the log's lock, without one", "it is killed, and started again",
    "the driver's line: it had hung",
)  # fmt: skip
INGEST_COMMANDS: Final = Wait("a line of the driver", NOTHING, "it is done; the ingest ends with its driver", OWN)
INGEST_END: Final = Wait(
    "an ingest that has closed its output, or was told to end", 5.0, "it is killed", "the driver's line"
)
INGEST_UP: Final = Wait(
    "the links of an ingest, for a drain", "the driver waits 120 s for them", "`IngestFailed`", "the error"
)
INGEST_DRAIN: Final = Wait("messages of a drain", "`drainTimeout`", "it stops there", "the ingest's line", ())
INGEST_STATE: Final = Wait(
    "what an ingest is to say, such as that it has drained", "120 s to attach, `drainTimeout` and 15 s to drain",
    "`IngestFailed`", "the error of the query",
)  # fmt: skip
BACKLOG: Final = Wait(
    "room in the log's memory", "DISK: the log is written", "receiving goes on", "lag in the metrics of receivers"
)
LOG_WRITTEN: Final = Wait(
    "rows of a log on the disk or in the bucket", "DISK; a request to a bucket: 30 s, with its repetitions 300 s",
    "`WalError`: the log takes no more", "the error of the query",
)  # fmt: skip
LOG_LOCK: Final = Wait(
    "another process that has the log's lock", "`lockTimeout`", "`LockHeld`, which names it", "the error", ()
)
TOPICS: Final = Wait(
    "a router's answer, which topics there are", 30.0, "it is asked again", "`IngestFailed` of who waits for it"
)
OUTBOX: Final = Wait(
    "outcomes of what a query publishes",
    "`publishTimeout` without progress",
    "`PublishFailed`",
    "the error of the query",
)


def rows(module: dict[str, object]) -> tuple[Wait, ...]:
    """The rows that a module has declared; each gets its name."""
    found = {name: row for name, row in module.items() if isinstance(row, Wait)}
    for name, row in found.items():
        object.__setattr__(row, "name", name.lower())
    return tuple(row for row in found.values() if row is not CALLER)


TABLE: Final = rows(vars())
COUNTED: Final = tuple(row for row in TABLE if METRIC in row.told)
"""Those whose ends a router counts."""
