/* MQTT subscribers, each on a connection of its own: measures and counts as amqp_sub does.
 *
 *   mqtt_sub -u HOST:PORT -a TOPIC -c COUNT -t TIMEOUT_S -n SUBSCRIBERS -i IDLE_S -w RECEIVE_MAXIMUM -q QOS
 *
 * Prints READY when every SUBSCRIBE is acknowledged. */
#include "mqtt.h"

static uint32_t ready;

static void on_connect(struct mosquitto *client, void *context, int code) {
    if (code) fail("subscriber: refused with code %d", code);
    mosquitto_subscribe(client, NULL, address, qos);
}

static void on_subscribed(struct mosquitto *client, void *context, int id, int granted_count, const int *granted) {
    if (*granted != (int)qos) fail("subscriber: the peer grants QoS %d", *granted);
    if (++ready == subscribers) {
        printf("READY\n");
        fflush(stdout);
    }
}

static void on_message(struct mosquitto *client, void *context, const struct mosquitto_message *message) {
    note_message(context, message->payload, message->payloadlen);
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    mosquitto_lib_init();
    struct mosquitto **clients = allocate(subscribers, sizeof *clients);
    received_t *received = allocate(subscribers, sizeof *received);
    for (uint32_t i = 0; i < subscribers; i++) {
        char id[48];
        snprintf(id, sizeof id, "subscriber-%d-%u", getpid(), i);
        received[i] = new_received();
        clients[i] = mosquitto_new(id, true, &received[i]);
        mosquitto_int_option(clients[i], MOSQ_OPT_RECEIVE_MAXIMUM, window > 65535 ? 65535 : window);
        mosquitto_connect_callback_set(clients[i], on_connect);
        mosquitto_subscribe_callback_set(clients[i], on_subscribed);
        mosquitto_message_callback_set(clients[i], on_message);
        dial(clients[i], url, "subscriber");
    }
    uint64_t started_ns = now_ns(), now = started_ns;
    /* 0.3 s longer than the last message, so that its acknowledgements, which cost the peer time, are exchanged too. */
    while (now - started_ns < timeout_s * SECOND && !(tally.last_ns && now - tally.last_ns > idle_s * SECOND) &&
           !(!missing() && now - tally.last_ns > 300 * MS)) {
        serve(clients, subscribers, 20);
        now = now_ns();
    }
    printf("{");
    print_tally();
    _exit(0);
}
