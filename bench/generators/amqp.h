/* What both AMQP generators do with proton. */
#ifndef AMQP_H
#define AMQP_H
#include "load.h"
#include <proton/condition.h>
#include <proton/connection.h>
#include <proton/delivery.h>
#include <proton/event.h>
#include <proton/link.h>
#include <proton/proactor.h>
#include <proton/sasl.h>
#include <proton/session.h>
#include <proton/ssl.h>
#include <proton/transport.h>

static pn_proactor_t *proactor;
static bool finished; /* measured: all that is left is to close */
static bool closed;

/* The first line of a file. */
static inline char *first_line(const char *path) {
    static char line[256];
    FILE *file = fopen(path, "r");
    if (!file || !fgets(line, sizeof line, file)) fail("%s cannot be read", path);
    fclose(file);
    line[strcspn(line, "\n")] = 0;
    return line;
}

/* With -A through TLS: the certificate must be of this authority, and name localhost. -C: shows a certificate; its key is
 * in the same file. -U, -P: logs in with the password in the file. */
static inline void dial(const char *url, pn_connection_t *connection, const char *container_id) {
    pn_connection_set_container(connection, container_id);
    pn_transport_t *transport = pn_transport();
    if (user) {
        pn_connection_set_user(connection, user);
        pn_connection_set_password(connection, first_line(password_file));
    }
    pn_sasl_allowed_mechs(pn_sasl(transport), user ? "PLAIN" : "ANONYMOUS");
    if (authority) {
        pn_ssl_domain_t *domain = pn_ssl_domain(PN_SSL_MODE_CLIENT);
        if (pn_ssl_domain_set_trusted_ca_db(domain, authority) ||
            (certificate && pn_ssl_domain_set_credentials(domain, certificate, certificate, NULL)) ||
            pn_ssl_domain_set_peer_authentication(domain, PN_SSL_VERIFY_PEER_NAME, NULL) ||
            pn_ssl_init(pn_ssl(transport), domain, NULL))
            fail("%s cannot be used for TLS", certificate ? certificate : authority);
        pn_ssl_set_peer_hostname(pn_ssl(transport), "localhost");
        pn_ssl_domain_free(domain);
    }
    pn_proactor_connect2(proactor, connection, transport, url);
}

/* Fails when the peer closes, or the connection breaks, before the measurement is finished. */
static inline void on_close(pn_event_t *event, const char *who) {
    pn_condition_t *condition;
    switch (pn_event_type(event)) {
    case PN_CONNECTION_REMOTE_CLOSE: condition = pn_connection_remote_condition(pn_event_connection(event)); break;
    case PN_SESSION_REMOTE_CLOSE: condition = pn_session_remote_condition(pn_event_session(event)); break;
    case PN_LINK_REMOTE_CLOSE:
    case PN_LINK_REMOTE_DETACH: condition = pn_link_remote_condition(pn_event_link(event)); break;
    case PN_TRANSPORT_CLOSED: condition = pn_transport_condition(pn_event_transport(event)); break;
    default: return;
    }
    closed = pn_event_type(event) == PN_TRANSPORT_CLOSED;
    if (finished) return;
    const char *name = pn_condition_get_name(condition), *description = pn_condition_get_description(condition);
    fail("%s: %s: %s %s", who, pn_event_type_name(pn_event_type(event)), name ? name : "no condition",
         description ? description : "");
}

static inline void run(void (*handle)(pn_event_t *)) {
    while (!closed) {
        pn_event_batch_t *batch = pn_proactor_wait(proactor);
        for (pn_event_t *event; (event = pn_event_batch_next(batch));) handle(event);
        pn_proactor_done(proactor, batch);
    }
}
#endif
