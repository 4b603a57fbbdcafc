/* A load generator for Kafka brokers: one thread, N connections, raw requests.
 *
 *   load HOST PORT MODE [option value]...
 *
 * Modes:
 *   api_versions, metadata   small requests, one after the other
 *   produce   one batch a request: --batch-file, or records of --record-bytes up to --batch-bytes
 *   commit    an offset of one partition a request, connection i for the group load-i
 *   fetch     from offset 0 to the end, and again
 *   idle      long polls at the end of the log, of --wait-ms each
 *   parked    all connections but one wait at the end, the one produces a record: after how long
 *             the first (p50_us) and the last (p99_us) of them has it; the median of all rounds
 *   latency   one connection waits at the end, another one produces a record: after how long the
 *             record is there; then the next one
 * Options: --connections 1, --depth 1 (requests under way per connection), --seconds 5,
 * --warmup 1, --topic load, --partitions 1 (connection i takes partition i modulo that),
 * --record-bytes 100, --batch-bytes 0, --batch-file, --fetch-bytes 1048576, --wait-ms 500,
 * --acks 1, --pause-us 0 (latency: before each record), --fds N,N,... (file descriptors that it
 * inherits: one open connection each, which may have logged in, instead of new ones).
 *
 * The topic must exist and be led by the broker at HOST:PORT. It prints one line of JSON;
 * "megabytes" are record bytes sent or received, 10^6 each. Exit 1 if the broker answered with
 * an error or closed a connection, 2 for misuse.
 */
#define _GNU_SOURCE
#include "wire.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum mode {
    IN_API_VERSIONS, IN_METADATA, IN_PRODUCE, IN_COMMIT, IN_FETCH, IN_IDLE, IN_PARKED, IN_LATENCY,
};

static const char *mode_names[] = {
    "api_versions", "metadata", "produce", "commit", "fetch", "idle", "parked", "latency",
};
#define MODES (sizeof mode_names / sizeof *mode_names)
#define DEPTH_MAX 64
#define SAMPLES_MAX (1u << 24)
#define ROUNDS_MAX 1000

struct connection {
    int fd;
    int partition;
    enum api api;
    int is_watching_output;
    /* Start of each request under way, a ring. */
    uint64_t sent_ns[DEPTH_MAX];
    unsigned head, tail;
    /* The request, sent again and again; only a fetch's offset changes. */
    struct bytes request;
    size_t offset_position;
    /* Bytes still to be sent: whole requests and the rest of one. */
    int requests_to_send;
    size_t sent_of_request;
    /* The response being received. */
    char *response;
    size_t response_capacity;
    size_t received;
    int64_t fetch_offset;
};

static struct {
    const char *host, *port, *topic, *batch_file, *fds;
    enum mode mode;
    int connections, depth, partitions, acks, wait_ms, pause_us;
    double seconds, warmup;
    size_t record_bytes, batch_bytes, fetch_bytes;
} options = {
    .topic = "load", .connections = 1, .depth = 1, .partitions = 1, .acks = 1, .wait_ms = 500,
    .seconds = 5, .warmup = 1, .record_bytes = 100, .fetch_bytes = 1 << 20,
};

static struct {
    int is_counting;
    uint64_t requests, bytes, errors, empty;
    uint32_t *samples;
    size_t sample_count;
    int last_error;
} totals;

/* What `parked` and `latency` wait for. */
static struct {
    uint64_t produced_ns, first_ns, last_ns;
    int waiting, is_acknowledged;
} turn;

static int epoll_fd;
static struct bytes batch;
static struct connection *all;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Sending. */

static void watch(struct connection *it, int output) {
    if (it->is_watching_output == output) return;
    struct epoll_event event = {.events = EPOLLIN | (output ? EPOLLOUT : 0), .data.ptr = it};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, it->fd, &event)) die("epoll_ctl");
    it->is_watching_output = output;
}

static void push(struct connection *it) {
    while (it->requests_to_send) {
        ssize_t sent = send(it->fd, it->request.data + it->sent_of_request,
                            it->request.size - it->sent_of_request, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno != EAGAIN) die("send");
            watch(it, 1);
            return;
        }
        it->sent_of_request += (size_t)sent;
        if (it->sent_of_request == it->request.size) {
            it->sent_of_request = 0;
            it->requests_to_send--;
        }
    }
    watch(it, 0);
}

static void ask(struct connection *it) {
    if (it->api == FETCH) patch_int(it->request.data + it->offset_position, it->fetch_offset, 8);
    it->sent_ns[it->head++ % DEPTH_MAX] = now_ns();
    it->requests_to_send++;
    push(it);
}

/* Answers. */

static void failed(int error_code) {
    totals.errors++;
    totals.last_error = error_code;
}

static void sample(uint64_t took_ns) {
    uint64_t took_us = took_ns / 1000;
    if (totals.sample_count < SAMPLES_MAX)
        totals.samples[totals.sample_count++] =
            took_us > UINT32_MAX ? UINT32_MAX : (uint32_t)took_us;
}

/* Record bytes that a response stands for. */
static size_t look_into(struct connection *it, const char *data) {
    if (it->api == PRODUCE) {
        int error = produce_error(data, options.topic);
        if (error) failed(error);
        return error ? 0 : batch.size;
    }
    if (it->api == FETCH) {
        struct fetched found = read_fetch(data, options.topic);
        if (found.error) failed(found.error);
        if (found.next_offset < 0) totals.empty++;
        else it->fetch_offset = found.next_offset;
        /* At the end begin again, or the broker would wait for more. */
        if (options.mode == IN_FETCH && it->fetch_offset >= found.high_watermark)
            it->fetch_offset = 0;
        return found.size;
    }
    if (it->api == OFFSET_COMMIT) {
        int error = offset_commit_error(data, options.topic);
        if (error) failed(error);
    }
    if (it->api == API_VERSIONS && read_int(data + 4, 2)) failed((int)read_int(data + 4, 2));
    return 0;
}

/* In `parked` and `latency`, a turn is over when all have their record. */
static void note_turn(struct connection *it, uint64_t now, size_t bytes) {
    if (it->api == PRODUCE) {
        turn.is_acknowledged = 1;
    } else if (bytes && turn.waiting) {
        if (!turn.first_ns) turn.first_ns = now;
        turn.last_ns = now;
        turn.waiting--;
    } else {
        ask(it); /* It waited in vain, or there is more to skip. */
    }
}

static void answered(struct connection *it) {
    uint64_t now = now_ns();
    uint64_t took_ns = now - it->sent_ns[it->tail++ % DEPTH_MAX];
    size_t bytes = look_into(it, it->response + 4);
    if (options.mode >= IN_PARKED) {
        note_turn(it, now, bytes);
        return;
    }
    if (totals.is_counting) {
        totals.requests++;
        totals.bytes += bytes;
        sample(took_ns);
    }
    ask(it);
}

static void pull(struct connection *it) {
    ssize_t got = recv(it->fd, it->response + it->received,
                       it->response_capacity - it->received, 0);
    if (got < 0) {
        if (errno == EAGAIN) return;
        die("recv");
    }
    if (got == 0) {
        errno = ECONNRESET;
        die("the broker closed a connection");
    }
    it->received += (size_t)got;
    while (it->received >= 4) {
        size_t size = (size_t)read_int(it->response, 4) + 4;
        if (size > it->response_capacity) {
            it->response_capacity = size;
            it->response = realloc(it->response, size);
            if (!it->response) die("memory");
        }
        if (it->received < size) return;
        it->received -= size;
        answered(it);
        memmove(it->response, it->response + size, it->received);
    }
}

/* The loop. */

static void serve(int wait_ms) {
    struct epoll_event events[256];
    int count = epoll_wait(epoll_fd, events, 256, wait_ms);
    for (int i = 0; i < count; i++) {
        struct connection *it = events[i].data.ptr;
        if (events[i].events & EPOLLOUT) push(it);
        if (events[i].events & ~EPOLLOUT) pull(it);
    }
}

static void serve_until(uint64_t end_ns) {
    for (uint64_t now; (now = now_ns()) < end_ns;) serve((int)((end_ns - now) / 1000000) + 1);
}

static int by_value(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

/* One record for all who wait; every connection but the first does. */
static void take_turn(void) {
    turn.first_ns = turn.last_ns = 0;
    turn.is_acknowledged = 0;
    turn.waiting = options.connections - 1;
    for (int i = 1; i < options.connections; i++) ask(&all[i]);
    if (options.mode == IN_PARKED) serve_until(now_ns() + 300000000u);
    else if (options.pause_us) serve_until(now_ns() + (uint64_t)options.pause_us * 1000);
    turn.produced_ns = now_ns();
    ask(&all[0]);
    uint64_t deadline_ns = turn.produced_ns + 30000000000u;
    while (turn.waiting || !turn.is_acknowledged) {
        serve(1000);
        if (now_ns() > deadline_ns) die("a record did not come");
    }
}

static void run_latency(double seconds) {
    uint64_t end_ns = now_ns() + (uint64_t)(seconds * 1e9);
    while (now_ns() < end_ns) {
        take_turn();
        if (totals.is_counting) {
            totals.requests++;
            sample(turn.last_ns - turn.produced_ns);
        }
    }
}

static uint32_t first_us[ROUNDS_MAX], last_us[ROUNDS_MAX];

static void run_parked(double seconds) {
    uint64_t end_ns = now_ns() + (uint64_t)(seconds * 1e9);
    while (now_ns() < end_ns && totals.requests < ROUNDS_MAX) {
        take_turn();
        if (totals.is_counting) {
            first_us[totals.requests] = (uint32_t)((turn.first_ns - turn.produced_ns) / 1000);
            last_us[totals.requests++] = (uint32_t)((turn.last_ns - turn.produced_ns) / 1000);
        }
    }
}

static void run(double seconds) {
    if (options.mode == IN_PARKED) run_parked(seconds);
    else if (options.mode == IN_LATENCY) run_latency(seconds);
    else serve_until(now_ns() + (uint64_t)(seconds * 1e9));
}

/* Start and end. */

static int open_socket(void) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    if (getaddrinfo(options.host, options.port, &hints, &found)) die("getaddrinfo");
    int fd = socket(found->ai_family, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen)) die("connect");
    freeaddrinfo(found);
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

/* The next of --fds. */
static int inherited_socket(void) {
    char *rest;
    long fd = strtol(options.fds, &rest, 10);
    if (rest == options.fds || fcntl((int)fd, F_GETFL) < 0) die("--fds");
    options.fds = *rest == ',' ? rest + 1 : rest;
    return (int)fd;
}

/* The end of a partition's log. */
static int64_t log_end(int partition) {
    struct bytes request = {0};
    char answer[1024];
    put_list_offsets(&request, options.topic, partition);
    patch_int(request.data, (int64_t)request.size - 4, 4);
    int fd = open_socket();
    if (send(fd, request.data, request.size, MSG_NOSIGNAL) < 0) die("send");
    ssize_t got = recv(fd, answer, 4, MSG_WAITALL);
    size_t size = got == 4 ? (size_t)read_int(answer, 4) : 0;
    if (!size || size > sizeof answer || recv(fd, answer, size, MSG_WAITALL) != (ssize_t)size)
        die("ListOffsets");
    close(fd);
    int64_t offset = listed_offset(answer, options.topic);
    if (offset < 0) die("ListOffsets");
    free(request.data);
    return offset;
}

static enum api api_of(int number) {
    if (options.mode == IN_API_VERSIONS) return API_VERSIONS;
    if (options.mode == IN_METADATA) return METADATA;
    if (options.mode == IN_PRODUCE) return PRODUCE;
    if (options.mode == IN_COMMIT) return OFFSET_COMMIT;
    return options.mode >= IN_PARKED && number == 0 ? PRODUCE : FETCH;
}

static void make_request(struct connection *it) {
    struct bytes *out = &it->request;
    if (it->api == API_VERSIONS) put_header(out, API_VERSIONS, 2);
    else if (it->api == METADATA) put_metadata(out, options.topic);
    else if (it->api == PRODUCE)
        put_produce(out, options.topic, it->partition, options.acks, &batch);
    else if (it->api == OFFSET_COMMIT)
        put_offset_commit(out, options.topic, it->partition, (int)(it - all));
    else
        it->offset_position = put_fetch(
            out, options.topic, it->partition,
            options.mode == IN_PARKED ? 30000 : options.wait_ms, options.fetch_bytes);
    patch_int(out->data, (int64_t)out->size - 4, 4);
}

static void open_connection(struct connection *it) {
    it->fd = options.fds ? inherited_socket() : open_socket();
    fcntl(it->fd, F_SETFL, fcntl(it->fd, F_GETFL) | O_NONBLOCK);
    it->response_capacity = 1 << 14;
    it->response = malloc(it->response_capacity);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = it};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, it->fd, &event)) die("epoll_ctl");
}

static void open_all(void) {
    int64_t end = options.mode >= IN_IDLE ? log_end(0) : 0;
    for (int i = 0; i < options.connections; i++) {
        all[i].partition = i % options.partitions;
        all[i].api = api_of(i);
        all[i].fetch_offset = end;
        make_request(&all[i]);
        open_connection(&all[i]);
    }
    if (options.mode >= IN_PARKED) return;
    for (int i = 0; i < options.connections; i++)
        for (int under_way = 0; under_way < options.depth; under_way++) ask(&all[i]);
}

static unsigned share_of(uint32_t *values, size_t count, double share) {
    if (!count) return 0;
    qsort(values, count, sizeof *values, by_value);
    size_t index = (size_t)(share * (double)count);
    return values[index < count ? index : count - 1];
}

static void report(double seconds) {
    uint32_t *samples = totals.samples;
    size_t count = totals.sample_count;
    unsigned p50 = share_of(samples, count, 0.5), p99 = share_of(samples, count, 0.99);
    if (options.mode == IN_PARKED) {
        p50 = share_of(first_us, totals.requests, 0.5);
        p99 = share_of(last_us, totals.requests, 0.5);
    }
    printf("{\"mode\": \"%s\", \"connections\": %d, \"depth\": %d, \"seconds\": %.3f, "
           "\"requests\": %llu, \"requests_per_second\": %.1f, \"megabytes_per_second\": %.2f, "
           "\"p50_us\": %u, \"p99_us\": %u, \"p999_us\": %u, \"max_us\": %u, "
           "\"errors\": %llu, \"last_error\": %d, \"empty\": %llu}\n",
           mode_names[options.mode], options.connections, options.depth, seconds,
           (unsigned long long)totals.requests, (double)totals.requests / seconds,
           (double)totals.bytes / seconds / 1e6, p50, p99, share_of(samples, count, 0.999),
           share_of(samples, count, 1), (unsigned long long)totals.errors, totals.last_error,
           (unsigned long long)totals.empty);
}

static void misuse(const char *what) {
    fprintf(stderr, "load: %s; usage: load HOST PORT MODE [--option value]...\n", what);
    exit(2);
}

static void parse_option(const char *name, const char *value) {
    if (!strcmp(name, "--topic")) options.topic = value;
    else if (!strcmp(name, "--connections")) options.connections = atoi(value);
    else if (!strcmp(name, "--depth")) options.depth = atoi(value);
    else if (!strcmp(name, "--partitions")) options.partitions = atoi(value);
    else if (!strcmp(name, "--acks")) options.acks = atoi(value);
    else if (!strcmp(name, "--seconds")) options.seconds = atof(value);
    else if (!strcmp(name, "--warmup")) options.warmup = atof(value);
    else if (!strcmp(name, "--record-bytes")) options.record_bytes = (size_t)atol(value);
    else if (!strcmp(name, "--batch-bytes")) options.batch_bytes = (size_t)atol(value);
    else if (!strcmp(name, "--batch-file")) options.batch_file = value;
    else if (!strcmp(name, "--fetch-bytes")) options.fetch_bytes = (size_t)atol(value);
    else if (!strcmp(name, "--fds")) options.fds = value;
    else if (!strcmp(name, "--wait-ms")) options.wait_ms = atoi(value);
    else if (!strcmp(name, "--pause-us")) options.pause_us = atoi(value);
    else misuse(name);
}

static void parse(int argc, char **argv) {
    if (argc < 4 || argc % 2) misuse("wrong number of arguments");
    options.host = argv[1];
    options.port = argv[2];
    size_t mode = 0;
    while (mode < MODES && strcmp(argv[3], mode_names[mode])) mode++;
    if (mode == MODES) misuse("unknown mode");
    options.mode = (enum mode)mode;
    for (int i = 4; i < argc; i += 2) parse_option(argv[i], argv[i + 1]);
    int connections_min = options.mode >= IN_PARKED ? 2 : 1;
    if (options.mode == IN_LATENCY) options.connections = 2;
    if (options.connections < connections_min || options.partitions < 1) misuse("nothing to do");
    if (options.mode >= IN_PARKED && options.partitions > 1) misuse("--partitions 1 here");
    if (options.depth < 1 || options.depth > DEPTH_MAX) misuse("--depth is 1 to 64");
    if (options.mode >= IN_FETCH) options.depth = 1;
    if (options.mode == IN_PRODUCE && !options.acks) misuse("--acks 0 has no answers to count");
}

int main(int argc, char **argv) {
    parse(argc, argv);
    batch = options.batch_file ? read_batch(options.batch_file)
                               : make_batch(options.record_bytes, options.batch_bytes);
    epoll_fd = epoll_create1(0);
    totals.samples = malloc(SAMPLES_MAX * sizeof *totals.samples);
    all = calloc((size_t)options.connections, sizeof *all);
    if (epoll_fd < 0 || !totals.samples || !all) die("start");
    open_all();
    run(options.warmup);
    totals.is_counting = 1;
    totals.empty = 0;
    uint64_t start_ns = now_ns();
    run(options.seconds);
    report((double)(now_ns() - start_ns) / 1e9);
    return totals.errors ? 1 : 0;
}
