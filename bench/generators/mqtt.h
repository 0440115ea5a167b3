/* What both MQTT generators do with libmosquitto: one thread, one poll for all connections. */
#ifndef MQTT_H
#define MQTT_H
#include "load.h"
#include <mosquitto.h>
#include <poll.h>

static inline void dial(struct mosquitto *client, const char *url, const char *who) {
    char host[64] = "";
    int port = 0;
    if (!client || sscanf(url, "%63[^:]:%d", host, &port) != 2 || mosquitto_connect(client, host, port, 60))
        fail("%s: cannot connect to %s", who, url);
}

/* Reads and writes what can be, waiting so long for something to come. */
static inline void serve(struct mosquitto **clients, uint32_t number, int wait_ms) {
    static uint64_t kept_alive_ns;
    static struct pollfd *fds;
    if (!fds) fds = allocate(number, sizeof *fds);
    for (uint32_t i = 0; i < number; i++)
        fds[i] = (struct pollfd){mosquitto_socket(clients[i]), POLLIN | POLLOUT * mosquitto_want_write(clients[i]), 0};
    poll(fds, number, wait_ms);
    bool keep_alive = now_ns() - kept_alive_ns > 200 * MS;
    if (keep_alive) kept_alive_ns = now_ns();
    for (uint32_t i = 0; i < number; i++) {
        int code = fds[i].revents ? mosquitto_loop_read(clients[i], 64) : 0;
        if (!code && mosquitto_want_write(clients[i])) code = mosquitto_loop_write(clients[i], 64);
        if (!code && keep_alive) code = mosquitto_loop_misc(clients[i]);
        if (code) fail("connection lost: %s", mosquitto_strerror(code));
    }
}
#endif
