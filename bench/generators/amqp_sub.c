/* AMQP 1.0 subscribers, each on a connection of its own: measures the time from publisher to subscriber, and counts
 * messages lost, duplicate or out of order.
 *
 *   amqp_sub -u HOST:PORT -a ADDRESS -c COUNT -t TIMEOUT_S -n SUBSCRIBERS -i IDLE_S -w CREDIT [-2] [-g]
 *            [-f SELECTOR] [-A AUTHORITY_PEM [-C CERTIFICATE_PEM]] [-U USER -P PASSWORD_FILE]
 *
 * Prints READY when every attach is answered.  Accepts each of COUNT messages and settles it; with -2 (rcv-settle-mode
 * second) it settles after the peer.  Credit is topped up to CREDIT when half is used; with 0 it grants none.
 * With -g each message goes to one of the subscribers, as at a queue.  -f: a JMS selector, which the peer must apply.
 * Reports how many links the peer attached with mode first although second was asked for.
 * Ends when all subscribers have all, IDLE_S after the last message, or after TIMEOUT_S. */
#include "amqp.h"

static received_t *received;
static uint32_t ready, refused_second; /* of the links */
static uint64_t started_ns, unsettled; /* unsettled: accepted, and not settled by the peer yet */
static char *message;
static size_t message_room;

static void receive(received_t *subscriber, pn_link_t *link, pn_delivery_t *delivery) {
    size_t size = pn_delivery_pending(delivery);
    if (size > message_room) {
        message = realloc(message, message_room = 2 * size);
        if (!message) abort();
    }
    ssize_t got = pn_link_recv(link, message, size);
    if (got > 0) note_message(subscriber, message, got);
    pn_link_advance(link);
    bool settled = pn_delivery_settled(delivery);
    if (!settled) pn_delivery_update(delivery, PN_ACCEPTED);
    if (!settled && second) {
        unsettled++;
    } else {
        pn_delivery_settle(delivery);
    }
    int credit = pn_link_credit(link);
    if (credit <= (int)window / 2) pn_link_flow(link, window - credit);
}

static void on_delivery(pn_event_t *event) {
    pn_delivery_t *delivery = pn_event_delivery(event);
    if (pn_delivery_readable(delivery)) {
        if (pn_delivery_partial(delivery)) return;
        receive(pn_connection_get_context(pn_event_connection(event)), pn_event_link(event), delivery);
    } else if (pn_delivery_settled(delivery)) {
        pn_delivery_settle(delivery);
        unsettled--;
    }
    if (!missing() && !unsettled) closed = true;
}

/* {apache.org:selector-filter:string: described by its own name, the selector} */
static void set_selector(pn_data_t *filter) {
    pn_bytes_t name = pn_bytes(33, "apache.org:selector-filter:string");
    pn_data_put_map(filter);
    pn_data_enter(filter);
    pn_data_put_symbol(filter, name);
    pn_data_put_described(filter);
    pn_data_enter(filter);
    pn_data_put_symbol(filter, name);
    pn_data_put_string(filter, pn_bytes(strlen(selector), selector));
}

static void handle(pn_event_t *event) {
    switch (pn_event_type(event)) {
    case PN_CONNECTION_INIT: {
        pn_session_t *session = pn_session(pn_event_connection(event));
        pn_connection_open(pn_event_connection(event));
        pn_session_open(session);
        pn_link_t *link = pn_receiver(session, "subscriber");
        pn_terminus_set_address(pn_link_source(link), address);
        if (selector) set_selector(pn_terminus_filter(pn_link_source(link)));
        pn_link_set_snd_settle_mode(link, PN_SND_UNSETTLED);
        pn_link_set_rcv_settle_mode(link, second ? PN_RCV_SECOND : PN_RCV_FIRST);
        pn_link_open(link);
        pn_link_flow(link, window);
        break;
    }
    case PN_LINK_REMOTE_OPEN:
        if (second && pn_link_remote_rcv_settle_mode(pn_event_link(event)) != PN_RCV_SECOND) refused_second++;
        if (selector && !pn_data_size(pn_terminus_filter(pn_link_remote_source(pn_event_link(event)))))
            fail("subscriber: the peer applies no selector");
        if (++ready == subscribers) {
            printf("READY\n");
            fflush(stdout);
        }
        break;
    case PN_DELIVERY: on_delivery(event); break;
    case PN_PROACTOR_TIMEOUT:
        if (now_ns() - started_ns > timeout_s * SECOND) closed = true;
        if (tally.last_ns && now_ns() - tally.last_ns > idle_s * SECOND) closed = true;
        pn_proactor_set_timeout(proactor, 20);
        break;
    default: on_close(event, "subscriber");
    }
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    started_ns = now_ns();
    proactor = pn_proactor();
    received = allocate(subscribers, sizeof *received);
    for (uint32_t i = 0; i < subscribers; i++) {
        received[i] = new_received();
        if (together) received[i].seen = received[0].seen;
        pn_connection_t *connection = pn_connection();
        pn_connection_set_context(connection, &received[i]);
        char container_id[48];
        snprintf(container_id, sizeof container_id, "subscriber-%d-%u", getpid(), i);
        dial(url, connection, container_id);
    }
    pn_proactor_set_timeout(proactor, 20);
    run(handle);
    printf("{\"refused_second\": %u, ", refused_second);
    print_tally();
    _exit(0);
}
