/* A client in C with Debian's qpid-proton; tests/interop/test_clients.py says what `does WHAT NAME=VALUE...` does. */
#include <proton/connection.h>
#include <proton/delivery.h>
#include <proton/event.h>
#include <proton/link.h>
#include <proton/message.h>
#include <proton/proactor.h>
#include <proton/sasl.h>
#include <proton/session.h>
#include <proton/ssl.h>
#include <proton/terminus.h>
#include <proton/transport.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int argc_;
static char **argv_;
static const char *what, *mode;
static int count, sent, decided, received, presettled, second, busy, ending;
static size_t size;
static char *places[8], *addresses[8];
static int place;
static pn_proactor_t *proactor;
static pn_link_t *receiver, *sender;

static const char *option(const char *name, const char *otherwise) {
  for (int n = 2; n < argc_; n++)
    if (!strncmp(argv_[n], name, strlen(name)) && argv_[n][strlen(name)] == '=') return argv_[n] + strlen(name) + 1;
  return otherwise;
}

static int is(const char *name) { return !strcmp(what, name); }

static void split(const char *text, char **into) {
  char *rest = strdup(text);
  for (int n = 0; (into[n] = strsep(&rest, ",")) && n < 6;) n++;
}

static void say(const char *text) {
  puts(text);
  fflush(stdout);
}

static void connect_to(char *to) {
  pn_transport_t *transport = pn_transport();
  pn_connection_t *connection = pn_connection();
  const char *ca = option("ca", NULL), *user = option("user", NULL), *own = option("certificate", NULL);
  if (ca) {
    pn_ssl_domain_t *domain = pn_ssl_domain(PN_SSL_MODE_CLIENT);
    pn_ssl_domain_set_trusted_ca_db(domain, ca);
    pn_ssl_domain_set_peer_authentication(domain, PN_SSL_VERIFY_PEER_NAME, NULL);
    if (own) pn_ssl_domain_set_credentials(domain, own, own, NULL);
    pn_ssl_init(pn_ssl(transport), domain, NULL);
    pn_ssl_set_peer_hostname(pn_ssl(transport), "localhost");
    pn_ssl_domain_free(domain);
  }
  if (option("mechanism", NULL)) pn_sasl_allowed_mechs(pn_sasl(transport), option("mechanism", NULL));
  if (user) {
    pn_connection_set_user(connection, user);
    pn_connection_set_password(connection, option("password", ""));
  }
  pn_proactor_connect2(proactor, connection, transport, to);
}

static void set_modes(pn_link_t *link) {
  pn_link_set_snd_settle_mode(link, presettled ? PN_SND_SETTLED : PN_SND_UNSETTLED);
  pn_link_set_rcv_settle_mode(link, second ? PN_RCV_SECOND : PN_RCV_FIRST);
}

static void start(pn_connection_t *connection) {
  pn_session_t *session = pn_session(connection);
  pn_connection_set_container(connection, "in-c");
  pn_connection_open(connection);
  pn_session_open(session);
  if (is("open")) return;
  if (is("receive") || is("drain") || is("request")) {
    receiver = pn_receiver(session, "receives");
    if (is("request")) pn_terminus_set_dynamic(pn_link_source(receiver), true);
    else pn_terminus_set_address(pn_link_source(receiver), addresses[0]);
    if (option("selector", NULL)) {
      const char *name = "apache.org:selector-filter:string", *text = option("selector", NULL);
      pn_data_t *data = pn_terminus_filter(pn_link_source(receiver));
      pn_data_put_map(data);
      pn_data_enter(data);
      pn_data_put_symbol(data, pn_bytes(8, "selector"));
      pn_data_put_described(data);
      pn_data_enter(data);
      pn_data_put_symbol(data, pn_bytes(strlen(name), name));
      pn_data_put_string(data, pn_bytes(strlen(text), text));
      pn_data_exit(data);
      pn_data_exit(data);
    }
    set_modes(receiver);
    pn_link_open(receiver);
    if (is("drain")) pn_link_drain(receiver, 10);
    else pn_link_flow(receiver, 50);
  }
  if (is("send") || is("again") || is("anonymous") || is("request")) {
    sender = pn_sender(session, "sends");
    if (!is("anonymous")) pn_terminus_set_address(pn_link_target(sender), addresses[0]);
    set_modes(sender);
    pn_link_open(sender);
  }
}

static void send_one(void) {
  static pn_rwbytes_t buffer;
  static int tag;
  pn_message_t *message = pn_message();
  char text[40];
  int length = snprintf(text, sizeof text, "message %d", sent);
  if (size) {
    char *octets = malloc(size);
    for (size_t n = 0; n < size; n++) octets[n] = n % 251;
    pn_message_set_inferred(message, true);
    pn_data_put_binary(pn_message_body(message), pn_bytes(size, octets));
    free(octets);
  } else {
    pn_data_put_string(pn_message_body(message), pn_bytes(length, text));
  }
  if (is("anonymous")) pn_message_set_address(message, addresses[sent]);
  if (is("request")) pn_message_set_reply_to(message, pn_terminus_get_address(pn_link_remote_source(receiver)));
  tag++;
  sent++;
  busy = 1;
  pn_delivery_t *delivery = pn_delivery(sender, pn_dtag((char *)&tag, sizeof tag));
  pn_message_send(message, sender, &buffer);
  pn_message_free(message);
  if (presettled) {
    pn_delivery_settle(delivery);
    say("sent");
  }
}

static void send_more(void) {
  if (is("request") && !pn_terminus_get_address(pn_link_remote_source(receiver))) return;
  while (sent < count && pn_link_credit(sender) > 0 && !(busy && !is("send"))) send_one();
}

static void read_one(pn_delivery_t *delivery) {
  static char *octets;
  static size_t have;
  pn_link_t *link = pn_delivery_link(delivery);
  size_t pending = pn_delivery_pending(delivery);
  octets = realloc(octets, have + pending + 1);
  ssize_t read = pn_link_recv(link, octets + have, pending);
  if (read > 0) have += read;
  if (pn_delivery_partial(delivery)) return;
  pn_message_t *message = pn_message();
  pn_message_decode(message, octets, have);
  pn_data_t *body = pn_message_body(message);
  pn_data_next(body);
  if (pn_data_type(body) == PN_STRING) {
    printf("%.*s\n", (int)pn_data_get_string(body).size, pn_data_get_string(body).start);
  } else if (pn_data_type(body) == PN_BINARY) {
    pn_bytes_t bytes = pn_data_get_binary(body);
    unsigned long sum = 0;
    for (size_t n = 0; n < bytes.size; n++) sum += (unsigned char)bytes.start[n];
    printf("%zu %lu\n", bytes.size, sum);
  } else {
    char text[80];
    size_t room = sizeof text;
    pn_data_format(body, text, &room);
    printf("%.*s\n", (int)room, text);
  }
  fflush(stdout);
  pn_message_free(message);
  have = 0;
  received++;
  pn_link_advance(link);
  if (pn_delivery_settled(delivery)) {
    pn_delivery_settle(delivery);
  } else {
    pn_delivery_update(delivery, PN_ACCEPTED);
    if (!second) pn_delivery_settle(delivery);
  }
}

static void on_delivery(pn_delivery_t *delivery) {
  pn_link_t *link = pn_delivery_link(delivery);
  if (pn_link_is_receiver(link)) {
    if (pn_delivery_readable(delivery)) {
      read_one(delivery);
      if (is("request")) busy = 0, send_more();
    } else if (pn_delivery_settled(delivery)) {
      pn_delivery_settle(delivery);
    }
    if (received == count && !second && !is("drain")) ending = 1;
    if (received == count && second && !pn_link_unsettled(link)) ending = 1;
    if (ending) pn_connection_close(pn_session_connection(pn_link_session(link)));
    return;
  }
  uint64_t state = pn_delivery_remote_state(delivery);
  if (!state) return;
  const char *name = state == PN_ACCEPTED ? "accepted" : state == PN_REJECTED ? "rejected" : "not accepted";
  if (is("anonymous")) printf("%s ", addresses[decided]);
  if (!is("request")) say(name);
  decided++;
  pn_delivery_settle(delivery);
  if (!is("request")) {
    busy = 0;
    send_more();
    if (decided == count) ending = 1, pn_connection_close(pn_session_connection(pn_link_session(link)));
  }
}

static int handle(pn_event_t *event) {
  pn_connection_t *connection = pn_event_connection(event);
  pn_link_t *link = pn_event_link(event);
  switch (pn_event_type(event)) {
    case PN_CONNECTION_INIT: start(connection); break;
    case PN_CONNECTION_REMOTE_OPEN:
      if (is("open")) {
        char text[2000];
        size_t room = sizeof text;
        pn_data_t *properties = pn_connection_remote_properties(connection);
        pn_data_format(properties, text, &room);
        printf("connected %.*s\n", (int)room, text);
        ending = 1;
        pn_connection_close(connection);
      }
      break;
    case PN_LINK_REMOTE_OPEN:
      if (is("receive")) say("attached");
      if (is("request")) send_more();
      break;
    case PN_LINK_FLOW:
      if (pn_link_is_sender(link)) send_more();
      else if (is("drain") && !ending && pn_link_credit(link) == 0) {
        if (received < count) {
          pn_link_drain(link, 10);
        } else {
          say("drained");
          ending = 1;
          pn_connection_close(connection);
        }
      }
      break;
    case PN_DELIVERY: on_delivery(pn_event_delivery(event)); break;
    case PN_CONNECTION_REMOTE_CLOSE: case PN_LINK_REMOTE_CLOSE: case PN_LINK_REMOTE_DETACH:
      pn_connection_close(connection);
      break;
    case PN_TRANSPORT_CLOSED:
      if (ending) return 0;
      if (is("again") && places[place + 1]) {
        sent = decided;
        busy = 0;
        say("again");
        connect_to(places[++place]);
        break;
      }
      printf("refused: %s\n", pn_condition_get_description(pn_transport_condition(pn_event_transport(event))));
      return 0;
    default: break;
  }
  return 1;
}

int main(int argc, char **argv) {
  argc_ = argc;
  argv_ = argv;
  what = argv[1];
  mode = option("mode", "unsettled");
  presettled = !strcmp(mode, "pre-settled");
  second = !strcmp(mode, "second");
  count = atoi(option("count", "1"));
  size = atol(option("size", "0"));
  split(option("at", ""), places);
  split(option("address", "none"), addresses);
  proactor = pn_proactor();
  connect_to(places[0]);
  for (;;) {
    pn_event_batch_t *events = pn_proactor_wait(proactor);
    for (pn_event_t *event; (event = pn_event_batch_next(events));)
      if (!handle(event)) return 0;
    pn_proactor_done(proactor, events);
  }
}
