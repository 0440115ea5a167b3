/* One AMQP 1.0 publisher: measures the time from each transfer to its outcome, and the rate of outcomes.
 *
 *   amqp_pub -u HOST:PORT -a ADDRESS -c COUNT -t TIMEOUT_S -s BODY_BYTES -w WINDOW [-r MESSAGES_PER_S] [-2] [-k]
 *            [-A AUTHORITY_PEM [-C CERTIFICATE_PEM]] [-U USER -P PASSWORD_FILE]
 *
 * Every message is sent unsettled, at most WINDOW of them without an outcome, and settled when its outcome comes. At a
 * rate the first one is sent a second after the attach: those of other publishers, which start then, are not measured.
 * -2: rcv-settle-mode second.  -k: settle nothing, print HELD when all are accepted, and stay until killed; subscribers
 * do not count these messages. */
#include "amqp.h"

static pn_link_t *sender;
static char *message;
static size_t message_bytes, body_at;
static uint64_t started_ns, first_ns, last_ns, *sent_ns;
static uint32_t sent, decided, accepted;

/* A message of one data section whose body is rewritten for each transfer (AMQP 3.2.6: vbin8 or vbin32). */
static void encode_message(void) {
    unsigned char vbin8[] = {0, 0x53, 0x75, 0xa0, body_bytes};
    unsigned char vbin32[] = {0, 0x53, 0x75, 0xb0, body_bytes >> 24, body_bytes >> 16, body_bytes >> 8, body_bytes};
    body_at = body_bytes < 256 ? sizeof vbin8 : sizeof vbin32;
    message_bytes = body_at + body_bytes;
    message = allocate(message_bytes, 1);
    memcpy(message, body_bytes < 256 ? vbin8 : vbin32, body_at);
    memset(message + body_at, 'x', body_bytes);
}

static void send_messages(void) {
    while (sender && sent < count && sent - decided < window && pn_link_credit(sender) > 0) {
        uint64_t now = now_ns();
        if (!first_ns) first_ns = now + (rate ? SECOND : 0);
        if (!due(now, first_ns, sent)) return;
        if (!keep) write_stamp(message + body_at, sent, now);
        pn_delivery_t *delivery = pn_delivery(sender, pn_dtag((char *)&sent, sizeof sent));
        pn_delivery_set_context(delivery, (void *)(uintptr_t)sent);
        sent_ns[sent++] = now;
        pn_link_send(sender, message, message_bytes);
        pn_link_advance(sender);
    }
}

static void on_disposition(pn_delivery_t *delivery) {
    uint64_t state = pn_delivery_remote_state(delivery);
    uintptr_t seq = (uintptr_t)pn_delivery_get_context(delivery);
    if (!pn_delivery_updated(delivery) || !sent_ns[seq]) return;
    if (!pn_delivery_settled(delivery) && (state == 0 || state == PN_RECEIVED)) return; /* no outcome yet */
    last_ns = now_ns();
    decided++;
    if (state == PN_ACCEPTED) {
        accepted++;
        note_latency(last_ns - sent_ns[seq]);
    }
    sent_ns[seq] = 0;
    if (!keep) pn_delivery_settle(delivery);
    if (keep && accepted == count) {
        printf("HELD\n");
        fflush(stdout);
    } else if (decided == count && !keep) {
        finished = true; /* the settlements leave before the close does */
        pn_connection_close(pn_session_connection(pn_link_session(sender)));
    }
    send_messages();
}

static void handle(pn_event_t *event) {
    switch (pn_event_type(event)) {
    case PN_CONNECTION_INIT: {
        pn_session_t *session = pn_session(pn_event_connection(event));
        pn_connection_open(pn_event_connection(event));
        pn_session_open(session);
        char name[32];
        snprintf(name, sizeof name, "publisher-%d", getpid());
        pn_link_t *link = pn_sender(session, name);
        pn_terminus_set_address(pn_link_target(link), address);
        pn_link_set_snd_settle_mode(link, PN_SND_UNSETTLED);
        pn_link_set_rcv_settle_mode(link, second ? PN_RCV_SECOND : PN_RCV_FIRST);
        pn_link_open(link);
        break;
    }
    case PN_LINK_REMOTE_OPEN: sender = pn_event_link(event); break;
    case PN_LINK_FLOW: send_messages(); break;
    case PN_CONNECTION_WAKE:
        send_messages();
        pn_proactor_set_timeout(proactor, pause_ms(now_ns(), first_ns, sent));
        break;
    case PN_DELIVERY: on_disposition(pn_event_delivery(event)); break;
    case PN_PROACTOR_TIMEOUT:
        if (!keep && now_ns() - started_ns > timeout_s * SECOND) closed = true;
        pn_proactor_set_timeout(proactor, sender ? 1000 : 1);
        if (sender) pn_connection_wake(pn_session_connection(pn_link_session(sender)));
        break;
    default: on_close(event, "publisher");
    }
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    encode_message();
    sent_ns = allocate(count, sizeof *sent_ns);
    started_ns = now_ns();
    proactor = pn_proactor();
    char container_id[32];
    snprintf(container_id, sizeof container_id, "publisher-%d", getpid());
    dial(url, pn_connection(), container_id);
    pn_proactor_set_timeout(proactor, 1);
    run(handle);
    printf("{\"accepted\": %u, ", accepted);
    print_times(first_ns, last_ns);
    _exit(0);
}
