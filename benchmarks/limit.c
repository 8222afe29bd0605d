/* How little CPU the fan-out of live.py can take: the same requests, the same bytes to the same
 * clients, and nothing else that a service does. Every FLUSH_MS one thread reads the sockets that
 * have something, matches by a grid, builds each message once, and writes once to each client. It
 * understands only what live_load.py sends, checks nothing, and ends when it is asked to or
 * something fails.
 *
 * cc -O2 -o limit limit.c -lm; ./limit PORT FLUSH_MS
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS = 16384, IN = 65536, OUT = 1 << 20, CELLS = 1 << 16, WAITING = 1 << 17 };
#define CELL 50.0

struct client {
    int joined, in_size, out_size, next; /* next: in its cell */
    double x, y, vx, vy, r, since;
    uint8_t *in, *out;
};
struct publication {
    int source, size;
    double x, y;
    uint8_t frame[192];
};
static struct client clients[CLIENTS]; /* by socket */
static struct publication waiting[WAITING];
static int cells[CELLS], waits, last;
static uint64_t number;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static double float64(const uint8_t *at) { /* after its 0xCB */
    uint64_t bits = 0;
    for (int k = 1; k <= 8; k++) bits = bits << 8 | at[k];
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

static uint8_t *put(uint8_t *at, int kind, uint64_t bits) {
    *at++ = kind;
    for (int shift = 56; shift >= 0; shift -= 8) *at++ = bits >> shift;
    return at;
}

static unsigned cell_of(long column, long row) {
    return (unsigned)(column * 73856093L ^ row * 19349663L) % CELLS;
}

/* [1, x, y, payload]: the frame that its receivers get, less the time, which is not read. */
static void publish(int socket, const uint8_t *at, int size) {
    if (waits == WAITING) fail("too many publications");
    struct publication *one = &waiting[waits++];
    const uint8_t *payload = at + 20;
    int length = size - 20;
    uint64_t x, y;
    one->source = socket, one->x = float64(at + 2), one->y = float64(at + 11);
    memcpy(&x, &one->x, 8), memcpy(&y, &one->y, 8);
    uint8_t *out = one->frame + 2;
    *out++ = 0x98, *out++ = 1, *out++ = 0x91, *out++ = 1;
    out = put(out, 0xCF, 1ULL << 40 | (uint64_t)socket);
    out = put(out, 0xCF, 1ULL << 48 | number++);
    out = put(out, 0xCF, 1ULL << 50);
    out = put(put(out, 0xCB, x), 0xCB, y);
    memcpy(out, payload, length);
    one->size = (int)(out - one->frame) + length;
    one->frame[1] = one->size - 2; /* below 126: live_load.py's payloads have 64 bytes */
    one->frame[0] = 0x82;
}

/* [4 or 5, 1, {"x": …, "y": …, "r": …, "vx": …, "vy": …}] */
static void follow(struct client *one, const uint8_t *at) {
    int fields = at[3] & 15;
    for (at += 4; fields--; at += 9) {
        int length = *at++ & 31;
        double value = float64(at + length);
        if (length == 2) *(at[1] == 'x' ? &one->vx : &one->vy) = value;
        else *(*at == 'x' ? &one->x : *at == 'y' ? &one->y : &one->r) = value;
        at += length;
    }
    one->since = now();
}

static void request(int socket, const uint8_t *at, int size) {
    if (at[1] == 1) publish(socket, at, size);
    else if (at[1] == 4 || at[1] == 5) follow(&clients[socket], at);
}

static void close_client(int socket) {
    free(clients[socket].in), free(clients[socket].out);
    memset(&clients[socket], 0, sizeof clients[socket]);
    close(socket);
}

static void read_client(int socket) {
    struct client *one = &clients[socket];
    ssize_t size = recv(socket, one->in + one->in_size, IN - one->in_size, 0);
    if (size <= 0) {
        close_client(socket);
        return;
    }
    one->in_size += (int)size;
    uint8_t *at = one->in, *end = one->in + one->in_size;
    if (!one->joined) {
        uint8_t *head = memmem(at, end - at, "\r\n\r\n", 4);
        if (!head) return;
        const char *answer =
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Accept: HSmrc0sMlYUkAGmm5OPpG2HaGWk=\r\n\r\n";
        if (send(socket, answer, strlen(answer), MSG_NOSIGNAL) < 0) fail("send");
        one->joined = 1, at = head + 4;
    }
    while (end - at >= 2) {
        int length = at[1] & 127, header = length == 126 ? 8 : 6; /* the mask is zeros */
        if (end - at < header) break;
        if (length == 126) length = at[2] << 8 | at[3];
        if (end - at < header + length) break;
        request(socket, at + header, length);
        at += header + length;
    }
    one->in_size = (int)(end - at);
    memmove(one->in, at, end - at);
}

static void flush(void) {
    double t = now();
    if (!waits) return;
    memset(cells, -1, sizeof cells);
    for (int k = 0; k <= last; k++) {
        struct client *one = &clients[k];
        if (!one->r) continue;
        one->x += one->vx * (t - one->since), one->y += one->vy * (t - one->since), one->since = t;
        unsigned cell = cell_of((long)floor(one->x / CELL), (long)floor(one->y / CELL));
        one->next = cells[cell], cells[cell] = k;
    }
    for (int k = 0; k < waits; k++) {
        struct publication *said = &waiting[k];
        long column = (long)floor(said->x / CELL), row = (long)floor(said->y / CELL);
        for (int near = 0; near < 9; near++) {
            unsigned cell = cell_of(column + near % 3 - 1, row + near / 3 - 1);
            for (int to = cells[cell]; to >= 0; to = clients[to].next) {
                struct client *one = &clients[to];
                double dx = one->x - said->x, dy = one->y - said->y;
                if (to == said->source || dx * dx + dy * dy > one->r * one->r) continue;
                if (one->out_size + said->size > OUT) fail("a client does not read");
                memcpy(one->out + one->out_size, said->frame, said->size);
                one->out_size += said->size;
            }
        }
    }
    waits = 0;
    for (int k = 0; k <= last; k++) {
        struct client *one = &clients[k];
        if (!one->out_size) continue;
        ssize_t sent = send(k, one->out, one->out_size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) sent = one->out_size;
        if (sent < 0) sent = 0;
        one->out_size -= (int)sent;
        memmove(one->out, one->out + sent, one->out_size);
    }
}

static void accept_client(int listening, int poll) {
    int on = 1, socket = accept(listening, NULL, NULL);
    if (socket < 0 || socket >= CLIENTS) fail("accept");
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    clients[socket].in = malloc(IN), clients[socket].out = malloc(OUT);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = socket};
    if (epoll_ctl(poll, EPOLL_CTL_ADD, socket, &event)) fail("epoll_ctl");
    if (socket > last) last = socket;
}

int main(int count, char **arguments) {
    if (count != 3) return fprintf(stderr, "usage: limit PORT FLUSH_MS\n"), 2;
    double pause = atof(arguments[2]) / 1000, due = now();
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(atoi(arguments[1])),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct rlimit files = {CLIENTS, CLIENTS};
    int on = 1, listening = socket(AF_INET, SOCK_STREAM, 0), poll = epoll_create1(0);
    setrlimit(RLIMIT_NOFILE, &files);
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listening, (void *)&address, sizeof address) || listen(listening, 4096)) fail("bind");
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listening}, events[256];
    epoll_ctl(poll, EPOLL_CTL_ADD, listening, &event);
    for (;;) {
        for (int ready; (ready = epoll_wait(poll, events, 256, 0)) > 0;)
            for (int k = 0; k < ready; k++)
                if (events[k].data.fd == listening) accept_client(listening, poll);
                else read_client(events[k].data.fd);
        flush(), due += pause;
        double left = due - now();
        if (left > 0) usleep((useconds_t)(left * 1e6));
        else due = now();
    }
}
