/* One MQTT publisher: measures the time from each PUBLISH to its last acknowledgement, and their rate.
 *
 *   mqtt_pub -u HOST:PORT -a TOPIC -c COUNT -t TIMEOUT_S -s BODY_BYTES -w WINDOW -q QOS [-r MESSAGES_PER_S] */
#include "mqtt.h"

static bool connected;
static uint32_t sent, accepted;
static uint64_t first_ns, last_ns, sent_ns[65536]; /* by packet identifier */

static void on_connect(struct mosquitto *client, void *context, int code) { connected = !code; }

static void on_acknowledged(struct mosquitto *client, void *context, int id) {
    last_ns = now_ns();
    note_latency(last_ns - sent_ns[id]);
    accepted++;
}

static void send_messages(struct mosquitto *client, void *body) {
    /* 64 at a time: what comes in meanwhile is read between them. */
    for (int burst = 0; burst < 64 && sent < count && sent - accepted < window; burst++) {
        uint64_t now = now_ns();
        int id;
        if (!due(now, first_ns, sent)) return;
        write_stamp(body, sent, now);
        if (mosquitto_publish(client, &id, address, body_bytes, body, qos, false)) return;
        if (!first_ns) first_ns = now;
        sent_ns[id] = now;
        sent++;
    }
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    char *body = allocate(body_bytes, 1), id[32];
    memset(body, 'x', body_bytes);
    mosquitto_lib_init();
    snprintf(id, sizeof id, "publisher-%d", getpid());
    struct mosquitto *client = mosquitto_new(id, true, NULL);
    mosquitto_max_inflight_messages_set(client, window);
    mosquitto_publish_callback_set(client, on_acknowledged);
    mosquitto_connect_callback_set(client, on_connect);
    dial(client, url, "publisher");
    uint64_t started_ns = now_ns();
    while (accepted < count && now_ns() - started_ns < timeout_s * SECOND) {
        serve(&client, 1, rate ? 1 : 10);
        if (connected) send_messages(client, body);
    }
    printf("{\"accepted\": %u, ", accepted);
    print_times(first_ns, last_ns);
    _exit(0);
}
