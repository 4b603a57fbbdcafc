/* A load generator for Kafka brokers: one thread, N connections, raw requests.
 *
 *   load HOST PORT MODE [option value]...
 *
 * Modes: api_versions, metadata (small requests), produce (one batch a request; one record of
 * --record-bytes unless --batch-bytes asks for more), fetch (from offset 0 to the end, and again).
 * Options: --connections 1, --depth 1 (requests under way per connection), --seconds 5,
 * --warmup 1, --topic load, --partitions 1 (connection i takes partition i modulo that),
 * --record-bytes 100, --batch-bytes 0, --fetch-bytes 1048576, --acks 1.
 *
 * The topic must exist and be led by the broker at HOST:PORT. It prints one line of JSON;
 * "megabytes" are record bytes sent or received, 10^6 each. Exit 1 if the broker answered with
 * an error or closed a connection, 2 for misuse.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum mode { API_VERSIONS, METADATA, PRODUCE, FETCH };

static const char *mode_names[] = {"api_versions", "metadata", "produce", "fetch"};

#define DEPTH_MAX 64
#define SAMPLES_MAX (1u << 24)

struct connection {
    int fd;
    int partition;
    int in_flight;
    int is_watching_output;
    /* Start of each request under way, a ring. */
    uint64_t sent_ns[DEPTH_MAX];
    unsigned head, tail;
    /* The request, sent again and again; only a fetch's offset changes. */
    char *request;
    size_t request_size;
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
    const char *host, *port, *topic;
    enum mode mode;
    int connections, depth, partitions, acks;
    double seconds, warmup;
    size_t record_bytes, batch_bytes, fetch_bytes;
} options = {
    .topic = "load", .connections = 1, .depth = 1, .partitions = 1, .acks = 1,
    .seconds = 5, .warmup = 1, .record_bytes = 100, .fetch_bytes = 1 << 20,
};

static struct {
    int is_counting;
    uint64_t requests, bytes, errors, empty;
    uint32_t *samples;
    size_t sample_count;
    int last_error;
} totals;

static int epoll_fd;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void die(const char *what) {
    fprintf(stderr, "load: %s: %s\n", what, errno ? strerror(errno) : "failed");
    exit(1);
}

/* Bytes under construction. */

struct bytes {
    char *data;
    size_t size, capacity;
};

static void put(struct bytes *out, const void *data, size_t size) {
    if (out->size + size > out->capacity) {
        out->capacity = (out->size + size) * 2;
        out->data = realloc(out->data, out->capacity);
        if (!out->data) die("memory");
    }
    memcpy(out->data + out->size, data, size);
    out->size += size;
}

static void put_int(struct bytes *out, int64_t value, int size) {
    char data[8];
    for (int i = size - 1; i >= 0; i--, value >>= 8) data[i] = (char)value;
    put(out, data, (size_t)size);
}

static void put_string(struct bytes *out, const char *text) {
    put_int(out, (int64_t)strlen(text), 2);
    put(out, text, strlen(text));
}

static void put_varint(struct bytes *out, int64_t value) {
    uint64_t folded = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    while (folded > 127) {
        put_int(out, (int64_t)((folded & 127) | 128), 1);
        folded >>= 7;
    }
    put_int(out, (int64_t)folded, 1);
}

static int64_t read_int(const char *data, int size) {
    int64_t value = (int8_t)data[0];
    for (int i = 1; i < size; i++) value = (value << 8) | (uint8_t)data[i];
    return value;
}

static void patch_int(char *data, int64_t value, int size) {
    for (int i = size - 1; i >= 0; i--, value >>= 8) data[i] = (char)value;
}

static uint32_t crc32c(const char *data, size_t size) {
    uint32_t crc = ~0u;
    while (size--) {
        crc ^= (uint8_t)*data++;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0x82f63b78u & (0u - (crc & 1)));
    }
    return ~crc;
}

/* Requests. */

static void put_record(struct bytes *batch, int offset_delta, const char *value) {
    struct bytes record = {0};
    put_int(&record, 0, 1);
    put_varint(&record, 0);
    put_varint(&record, offset_delta);
    put_varint(&record, -1);
    put_varint(&record, (int64_t)options.record_bytes);
    put(&record, value, options.record_bytes);
    put_varint(&record, 0);
    put_varint(batch, (int64_t)record.size);
    put(batch, record.data, record.size);
    free(record.data);
}

static struct bytes make_batch(void) {
    struct bytes batch = {0};
    struct timespec wall;
    char *value = malloc(options.record_bytes + 1);
    if (!value) die("memory");
    for (size_t i = 0; i < options.record_bytes; i++) value[i] = (char)('a' + i % 26);
    clock_gettime(CLOCK_REALTIME, &wall);
    int64_t now_ms = (int64_t)wall.tv_sec * 1000 + wall.tv_nsec / 1000000;
    put_int(&batch, 0, 8);   /* base offset */
    put_int(&batch, 0, 4);   /* length */
    put_int(&batch, -1, 4);  /* partition leader epoch */
    put_int(&batch, 2, 1);   /* magic */
    put_int(&batch, 0, 4);   /* crc */
    put_int(&batch, 0, 2);   /* attributes */
    put_int(&batch, 0, 4);   /* last offset delta */
    put_int(&batch, now_ms, 8);
    put_int(&batch, now_ms, 8);
    put_int(&batch, -1, 8);  /* producer id */
    put_int(&batch, -1, 2);
    put_int(&batch, -1, 4);
    put_int(&batch, 0, 4);   /* records */
    int count = 0;
    do put_record(&batch, count++, value);
    while (batch.size + options.record_bytes + 16 <= options.batch_bytes);
    patch_int(batch.data + 8, (int64_t)batch.size - 12, 4);
    patch_int(batch.data + 23, count - 1, 4);
    patch_int(batch.data + 57, count, 4);
    patch_int(batch.data + 17, crc32c(batch.data + 21, batch.size - 21), 4);
    free(value);
    return batch;
}

static void put_header(struct bytes *out, int api_key, int version) {
    put_int(out, 0, 4);
    put_int(out, api_key, 2);
    put_int(out, version, 2);
    put_int(out, 7, 4);
    put_string(out, "load");
}

static void make_request(struct connection *it, const struct bytes *batch) {
    struct bytes out = {0};
    if (options.mode == API_VERSIONS) {
        put_header(&out, 18, 2);
    } else if (options.mode == METADATA) {
        put_header(&out, 3, 8);
        put_int(&out, 1, 4);
        put_string(&out, options.topic);
        put_int(&out, 0, 3); /* no auto-creation, no authorized operations */
    } else if (options.mode == PRODUCE) {
        put_header(&out, 0, 7);
        put_int(&out, -1, 2);
        put_int(&out, options.acks, 2);
        put_int(&out, 30000, 4);
        put_int(&out, 1, 4);
        put_string(&out, options.topic);
        put_int(&out, 1, 4);
        put_int(&out, it->partition, 4);
        put_int(&out, (int64_t)batch->size, 4);
        put(&out, batch->data, batch->size);
    } else {
        put_header(&out, 1, 11);
        put_int(&out, -1, 4);    /* replica */
        put_int(&out, 500, 4);   /* max wait */
        put_int(&out, 1, 4);     /* min bytes */
        put_int(&out, (int64_t)options.fetch_bytes, 4);
        put_int(&out, 0, 1);     /* read_uncommitted */
        put_int(&out, 0, 4);     /* session */
        put_int(&out, -1, 4);
        put_int(&out, 1, 4);
        put_string(&out, options.topic);
        put_int(&out, 1, 4);
        put_int(&out, it->partition, 4);
        put_int(&out, -1, 4);    /* leader epoch */
        it->offset_position = out.size;
        put_int(&out, 0, 8);
        put_int(&out, -1, 8);    /* log start offset */
        put_int(&out, (int64_t)options.fetch_bytes, 4);
        put_int(&out, 0, 4);     /* forgotten topics */
        put_string(&out, "");
    }
    patch_int(out.data, (int64_t)out.size - 4, 4);
    it->request = out.data;
    it->request_size = out.size;
}

/* Responses. */

static void failed(int error_code) {
    totals.errors++;
    totals.last_error = error_code;
}

/* The offset behind the last whole batch; -1 if there is none. */
static int64_t next_offset(const char *records, size_t size) {
    int64_t next = -1;
    while (size >= 61) {
        size_t batch = (size_t)read_int(records + 8, 4) + 12;
        if (batch > size) break;
        next = read_int(records, 8) + read_int(records + 23, 4) + 1;
        records += batch;
        size -= batch;
    }
    return next;
}

/* Record bytes that a response stands for. */
static size_t check_response(struct connection *it, const char *data, const struct bytes *batch) {
    size_t topic = 2 + strlen(options.topic);
    if (options.mode == API_VERSIONS) {
        int error = (int)read_int(data + 4, 2);
        if (error) failed(error);
        return 0;
    }
    if (options.mode == PRODUCE) {
        int error = (int)read_int(data + 4 + 4 + topic + 4 + 4, 2);
        if (error) failed(error);
        return error ? 0 : batch->size;
    }
    if (options.mode == FETCH) {
        /* correlation, throttle, error, session, topics, name, partitions, partition */
        const char *at = data + 4 + 4;
        int error = (int)read_int(at, 2);
        at += 2 + 4 + 4 + topic + 4 + 4;
        if (!error) error = (int)read_int(at, 2);
        if (error) {
            failed(error);
            return 0;
        }
        int64_t high_watermark = read_int(at + 2, 8);
        at += 2 + 8 + 8 + 8;
        int32_t aborted = (int32_t)read_int(at, 4);
        at += 4 + (aborted > 0 ? (size_t)aborted * 16 : 0) + 4;
        int32_t size = (int32_t)read_int(at, 4);
        int64_t next = size > 0 ? next_offset(at + 4, (size_t)size) : -1;
        if (next < 0) totals.empty++;
        /* At the end begin again, or the broker would wait for more. */
        it->fetch_offset = next < 0 || next >= high_watermark ? 0 : next;
        return size > 0 ? (size_t)size : 0;
    }
    return 0;
}

/* The loop. */

static void watch(struct connection *it, int output) {
    if (it->is_watching_output == output) return;
    struct epoll_event event = {.events = EPOLLIN | (output ? EPOLLOUT : 0), .data.ptr = it};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, it->fd, &event)) die("epoll_ctl");
    it->is_watching_output = output;
}

static void push(struct connection *it) {
    while (it->requests_to_send) {
        ssize_t sent = send(it->fd, it->request + it->sent_of_request,
                            it->request_size - it->sent_of_request, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno != EAGAIN) die("send");
            watch(it, 1);
            return;
        }
        it->sent_of_request += (size_t)sent;
        if (it->sent_of_request == it->request_size) {
            it->sent_of_request = 0;
            it->requests_to_send--;
        }
    }
    watch(it, 0);
}

static void ask(struct connection *it) {
    if (options.mode == FETCH) patch_int(it->request + it->offset_position, it->fetch_offset, 8);
    it->sent_ns[it->head++ % DEPTH_MAX] = now_ns();
    it->in_flight++;
    it->requests_to_send++;
    push(it);
}

static void answered(struct connection *it, const struct bytes *batch) {
    uint64_t took_us = (now_ns() - it->sent_ns[it->tail++ % DEPTH_MAX]) / 1000;
    size_t bytes = check_response(it, it->response + 4, batch);
    it->in_flight--;
    if (totals.is_counting) {
        totals.requests++;
        totals.bytes += bytes;
        if (totals.sample_count < SAMPLES_MAX)
            totals.samples[totals.sample_count++] =
                took_us > UINT32_MAX ? UINT32_MAX : (uint32_t)took_us;
    }
}

static void pull(struct connection *it, const struct bytes *batch) {
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
        answered(it, batch);
        it->received -= size;
        memmove(it->response, it->response + size, it->received);
        ask(it);
    }
}

static void open_connection(struct connection *it) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    if (getaddrinfo(options.host, options.port, &hints, &found)) die("getaddrinfo");
    it->fd = socket(found->ai_family, SOCK_STREAM, 0);
    if (it->fd < 0 || connect(it->fd, found->ai_addr, found->ai_addrlen)) die("connect");
    freeaddrinfo(found);
    int on = 1;
    setsockopt(it->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(it->fd, F_SETFL, fcntl(it->fd, F_GETFL) | O_NONBLOCK);
    it->response_capacity = 1 << 16;
    it->response = malloc(it->response_capacity);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = it};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, it->fd, &event)) die("epoll_ctl");
}

static void run_until(uint64_t end_ns, const struct bytes *batch) {
    struct epoll_event events[256];
    while (now_ns() < end_ns) {
        int count = epoll_wait(epoll_fd, events, 256, 100);
        for (int i = 0; i < count; i++) {
            struct connection *it = events[i].data.ptr;
            if (events[i].events & EPOLLOUT) push(it);
            if (events[i].events & ~EPOLLOUT) pull(it, batch);
        }
    }
}

/* Start and end. */

static int by_value(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static unsigned percentile(double share) {
    if (!totals.sample_count) return 0;
    size_t index = (size_t)(share * (double)totals.sample_count);
    return totals.samples[index < totals.sample_count ? index : totals.sample_count - 1];
}

static void report(double seconds) {
    qsort(totals.samples, totals.sample_count, sizeof *totals.samples, by_value);
    printf("{\"mode\": \"%s\", \"connections\": %d, \"depth\": %d, \"seconds\": %.3f, "
           "\"requests\": %llu, \"requests_per_second\": %.1f, \"megabytes_per_second\": %.2f, "
           "\"p50_us\": %u, \"p99_us\": %u, \"p999_us\": %u, \"max_us\": %u, "
           "\"errors\": %llu, \"last_error\": %d, \"empty\": %llu}\n",
           mode_names[options.mode], options.connections, options.depth, seconds,
           (unsigned long long)totals.requests, (double)totals.requests / seconds,
           (double)totals.bytes / seconds / 1e6, percentile(0.5), percentile(0.99),
           percentile(0.999), percentile(1), (unsigned long long)totals.errors,
           totals.last_error, (unsigned long long)totals.empty);
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
    else if (!strcmp(name, "--fetch-bytes")) options.fetch_bytes = (size_t)atol(value);
    else misuse(name);
}

static void parse(int argc, char **argv) {
    if (argc < 4 || argc % 2) misuse("wrong number of arguments");
    options.host = argv[1];
    options.port = argv[2];
    int mode = 0;
    while (mode < 4 && strcmp(argv[3], mode_names[mode])) mode++;
    if (mode == 4) misuse("unknown mode");
    options.mode = (enum mode)mode;
    for (int i = 4; i < argc; i += 2) parse_option(argv[i], argv[i + 1]);
    if (options.connections < 1 || options.partitions < 1) misuse("nothing to do");
    if (options.depth < 1 || options.depth > DEPTH_MAX) misuse("--depth is 1 to 64");
    if (options.mode == FETCH) options.depth = 1;
    if (options.mode == PRODUCE && options.acks == 0) misuse("--acks 0 has no answers to count");
}

int main(int argc, char **argv) {
    parse(argc, argv);
    struct bytes batch = make_batch();
    epoll_fd = epoll_create1(0);
    totals.samples = malloc(SAMPLES_MAX * sizeof *totals.samples);
    struct connection *all = calloc((size_t)options.connections, sizeof *all);
    if (epoll_fd < 0 || !totals.samples || !all) die("start");
    for (int i = 0; i < options.connections; i++) {
        all[i].partition = i % options.partitions;
        make_request(&all[i], &batch);
        open_connection(&all[i]);
    }
    for (int i = 0; i < options.connections; i++)
        for (int under_way = 0; under_way < options.depth; under_way++) ask(&all[i]);
    run_until(now_ns() + (uint64_t)(options.warmup * 1e9), &batch);
    totals.is_counting = 1;
    totals.empty = 0;
    uint64_t start_ns = now_ns();
    run_until(start_ns + (uint64_t)(options.seconds * 1e9), &batch);
    report((double)(now_ns() - start_ns) / 1e9);
    return totals.errors ? 1 : 0;
}
