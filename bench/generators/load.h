/* What the four generators share: the clock, the layout of a body, latencies, and a subscriber's tally. */
#ifndef LOAD_H
#define LOAD_H
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000ull
#define SECOND 1000000000ull
#define STAMP_BYTES 24
#define UNUSED __attribute__((unused))

/* Nanoseconds of a clock that all processes share, so that latencies can be taken between two of them. */
static inline uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

static inline void *allocate(size_t count, size_t size) {
    void *memory = calloc(count + 1, size);
    if (!memory) abort();
    return memory;
}

__attribute__((noreturn, format(printf, 1, 2))) static inline void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    _exit(1);
}

/* What all programs take; each uses what it needs (bench/load.py). */
static UNUSED const char *url, *address;
static UNUSED const char *authority, *certificate, *user, *password_file; /* null: no TLS, nobody */
static UNUSED uint32_t count, subscribers, timeout_s, idle_s, window; /* window: of publishers; credit of subscribers */
static UNUSED uint32_t body_bytes, qos;
static UNUSED double rate; /* messages a second; 0: as fast as window and peer allow */
static UNUSED bool second, keep, together;
static UNUSED const char *selector; /* null: no filter */

static inline void read_options(int argc, char **argv) {
    for (int option; (option = getopt(argc, argv, "u:a:c:n:t:i:w:s:q:r:A:C:U:P:f:2kg")) != -1;) switch (option) {
        case 'u': url = optarg; break;
        case 'a': address = optarg; break;
        case 'c': count = atoi(optarg); break;
        case 'n': subscribers = atoi(optarg); break;
        case 't': timeout_s = atoi(optarg); break;
        case 'i': idle_s = atoi(optarg); break;
        case 'w': window = atoi(optarg); break;
        case 's': body_bytes = atoi(optarg); break;
        case 'q': qos = atoi(optarg); break;
        case 'r': rate = atof(optarg); break;
        case 'A': authority = optarg; break;
        case 'C': certificate = optarg; break;
        case 'U': user = optarg; break;
        case 'P': password_file = optarg; break;
        case '2': second = true; break;
        case 'k': keep = true; break;
        case 'g': together = true; break;
        case 'f': selector = optarg; break;
        default: _exit(2);
        }
    if (user && !password_file) fail("a user needs -P FILE");
    if (!url || !address || !count || !timeout_s) fail("needed: -u HOST:PORT -a ADDRESS -c COUNT -t SECONDS");
    if (body_bytes < STAMP_BYTES) body_bytes = STAMP_BYTES;
}

/* A body starts with a stamp and is filled with 'x'; a smaller body than a stamp is not sent. */
typedef struct {
    char magic[8];
    uint64_t seq, sent_ns;
} stamp_t;
_Static_assert(sizeof(stamp_t) == STAMP_BYTES, "stamps differ in size");

static inline void write_stamp(void *body, uint64_t seq, uint64_t sent_ns) {
    stamp_t stamp = {"", seq, sent_ns};
    memcpy(stamp.magic, "ONCEWAY1", 8);
    memcpy(body, &stamp, sizeof stamp);
}

static struct {
    uint64_t *values; /* ns */
    size_t count, room;
} latencies;

/* Whether message number `sent` is due at a fixed rate. first_ns: when the first one is, which may lie ahead. */
static inline bool due(uint64_t now, uint64_t first_ns, uint32_t sent) {
    return !rate || !first_ns || (int64_t)(now - first_ns) / 1e9 * rate >= sent;
}

/* How long to wait for it, in ms. What is late waits for credit, whose arrival is an event. */
static inline int pause_ms(uint64_t now, uint64_t first_ns, uint32_t sent) {
    double left_ms = rate && first_ns ? first_ns / 1e6 + sent / rate * 1e3 - now / 1e6 : 0;
    return left_ms > 0 ? (int)left_ms + 1 : 10;
}

static inline void note_latency(uint64_t ns) {
    if (latencies.count == latencies.room) {
        latencies.room = latencies.room ? 2 * latencies.room : 65536;
        latencies.values = realloc(latencies.values, latencies.room * sizeof *latencies.values);
        if (!latencies.values) abort();
    }
    latencies.values[latencies.count++] = ns;
}

static inline int ascending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Ends the one line of JSON that every generator prints. */
static inline void print_times(uint64_t first_ns, uint64_t last_ns) {
    size_t n = latencies.count;
    uint64_t *v = latencies.values;
    if (n) qsort(v, n, sizeof *v, ascending);
    printf("\"first_ns\": %lu, \"last_ns\": %lu, \"p50_us\": %lu, \"p99_us\": %lu}\n", first_ns, last_ns,
           n ? v[(n - 1) / 2] / 1000 : 0, n ? v[(n - 1) * 99 / 100] / 1000 : 0);
    fflush(stdout);
}

/* What one subscriber has of the messages 0 to count - 1. */
typedef struct {
    bool *seen;
    int64_t highest;
} received_t;

static inline received_t new_received(void) { return (received_t){allocate(count, sizeof(bool)), -1}; }

/* What all subscribers of this process have. */
static UNUSED struct {
    uint64_t received, unique, duplicate, out_of_order, first_ns, last_ns;
} tally;

/* How many messages are still to come: to each subscriber all, or each to one of those that count together. */
static inline uint64_t missing(void) { return (uint64_t)(together ? 1 : subscribers) * count - tally.unique; }

/* A message has come whose body starts somewhere in `data`: the sections before it are the peer's business. */
static inline void note_message(received_t *r, const void *data, size_t size) {
    const char *start = memmem(data, size, "ONCEWAY1", 8);
    stamp_t stamp;
    if (!start || start + sizeof stamp > (const char *)data + size) return;
    memcpy(&stamp, start, sizeof stamp);
    if (stamp.seq >= count) return;
    int64_t seq = stamp.seq;
    tally.received++;
    if (r->seen[seq]) {
        tally.duplicate++;
    } else {
        r->seen[seq] = true;
        tally.unique++;
        if (seq < r->highest) tally.out_of_order++;
    }
    if (seq > r->highest) r->highest = seq;
    tally.last_ns = now_ns();
    if (!tally.first_ns) tally.first_ns = tally.last_ns;
    note_latency(tally.last_ns - stamp.sent_ns);
}

static inline void print_tally(void) {
    printf("\"received\": %lu, \"lost\": %lu, \"duplicate\": %lu, \"out_of_order\": %lu, ", tally.received,
           missing(), tally.duplicate, tally.out_of_order);
    print_times(tally.first_ns, tally.last_ns);
}
#endif
