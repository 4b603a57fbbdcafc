/* The little of Kafka's wire protocol that the load generator speaks: bytes, batches, requests,
 * and how to look into their answers. */
#ifndef WIRE_H
#define WIRE_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum api {
    PRODUCE = 0, FETCH = 1, LIST_OFFSETS = 2, METADATA = 3, OFFSET_COMMIT = 8, API_VERSIONS = 18,
};

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

/* A batch. */

static uint32_t crc32c(const char *data, size_t size) {
    uint32_t crc = ~0u;
    while (size--) {
        crc ^= (uint8_t)*data++;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0x82f63b78u & (0u - (crc & 1)));
    }
    return ~crc;
}

static void put_record(struct bytes *batch, int offset_delta, const char *value, size_t size) {
    struct bytes record = {0};
    put_int(&record, 0, 1);
    put_varint(&record, 0);
    put_varint(&record, offset_delta);
    put_varint(&record, -1);
    put_varint(&record, (int64_t)size);
    put(&record, value, size);
    put_varint(&record, 0);
    put_varint(batch, (int64_t)record.size);
    put(batch, record.data, record.size);
    free(record.data);
}

/* One v2 batch of records of `record_bytes`, as many as `batch_bytes` holds but at least one. */
static struct bytes make_batch(size_t record_bytes, size_t batch_bytes) {
    struct bytes batch = {0};
    struct timespec wall;
    char *value = malloc(record_bytes + 1);
    if (!value) die("memory");
    for (size_t i = 0; i < record_bytes; i++) value[i] = (char)('a' + i % 26);
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
    do put_record(&batch, count++, value, record_bytes);
    while (batch.size + record_bytes + 16 <= batch_bytes);
    patch_int(batch.data + 8, (int64_t)batch.size - 12, 4);
    patch_int(batch.data + 23, count - 1, 4);
    patch_int(batch.data + 57, count, 4);
    patch_int(batch.data + 17, crc32c(batch.data + 21, batch.size - 21), 4);
    free(value);
    return batch;
}

/* A batch that somebody else made. */
static struct bytes read_batch(const char *path) {
    struct bytes batch = {0};
    char chunk[65536];
    FILE *file = fopen(path, "rb");
    if (!file) die(path);
    for (size_t got; (got = fread(chunk, 1, sizeof chunk, file)) > 0;) put(&batch, chunk, got);
    fclose(file);
    return batch;
}

/* Requests; `patch_int(request.data, request.size - 4, 4)` completes one. */

static void put_header(struct bytes *out, enum api api, int version) {
    put_int(out, 0, 4);
    put_int(out, api, 2);
    put_int(out, version, 2);
    put_int(out, 7, 4);
    put_string(out, "load");
}

static void put_topic(struct bytes *out, const char *topic, int partition) {
    put_int(out, 1, 4);
    put_string(out, topic);
    put_int(out, 1, 4);
    put_int(out, partition, 4);
}

static void put_metadata(struct bytes *out, const char *topic) {
    put_header(out, METADATA, 8);
    put_int(out, 1, 4);
    put_string(out, topic);
    put_int(out, 0, 3); /* no auto-creation, no authorized operations */
}

static void put_list_offsets(struct bytes *out, const char *topic, int partition) {
    put_header(out, LIST_OFFSETS, 1);
    put_int(out, -1, 4); /* replica */
    put_topic(out, topic, partition);
    put_int(out, -1, 8); /* the end */
}

static void put_produce(
    struct bytes *out, const char *topic, int partition, int acks, const struct bytes *batch
) {
    put_header(out, PRODUCE, 7);
    put_int(out, -1, 2);
    put_int(out, acks, 2);
    put_int(out, 30000, 4);
    put_topic(out, topic, partition);
    put_int(out, (int64_t)batch->size, 4);
    put(out, batch->data, batch->size);
}

/* A commit of one partition, by a consumer that is in no group generation. */
static void put_offset_commit(struct bytes *out, const char *topic, int partition, int number) {
    char group[32];
    snprintf(group, sizeof group, "load-%d", number);
    put_header(out, OFFSET_COMMIT, 7);
    put_string(out, group);
    put_int(out, -1, 4); /* generation */
    put_string(out, "");
    put_int(out, -1, 2); /* no static member */
    put_topic(out, topic, partition);
    put_int(out, 42, 8); /* the offset */
    put_int(out, -1, 4); /* leader epoch */
    put_string(out, "");
}

/* Returns where the offset stands. */
static size_t put_fetch(
    struct bytes *out, const char *topic, int partition, int wait_ms, size_t fetch_bytes
) {
    put_header(out, FETCH, 11);
    put_int(out, -1, 4); /* replica */
    put_int(out, wait_ms, 4);
    put_int(out, 1, 4);  /* min bytes */
    put_int(out, (int64_t)fetch_bytes, 4);
    put_int(out, 0, 1);  /* read_uncommitted */
    put_int(out, 0, 4);  /* session */
    put_int(out, -1, 4);
    put_topic(out, topic, partition);
    put_int(out, -1, 4); /* leader epoch */
    size_t offset_position = out->size;
    put_int(out, 0, 8);
    put_int(out, -1, 8); /* log start offset */
    put_int(out, (int64_t)fetch_bytes, 4);
    put_int(out, 0, 4);  /* forgotten topics */
    put_string(out, "");
    return offset_position;
}

/* Answers. */

struct fetched {
    int error;
    size_t size;            /* bytes of records */
    int64_t next_offset;    /* behind the last whole batch; -1: there is none */
    int64_t high_watermark;
};

static int64_t offset_behind(const char *records, size_t size) {
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

/* `data` begins with the correlation id, here and below. */
static struct fetched read_fetch(const char *data, const char *topic) {
    struct fetched found = {.next_offset = -1};
    const char *at = data + 4 + 4; /* throttle */
    found.error = (int)read_int(at, 2);
    at += 2 + 4 + 4 + 2 + strlen(topic) + 4 + 4; /* session, topics, name, partitions, number */
    if (!found.error) found.error = (int)read_int(at, 2);
    if (found.error) return found;
    found.high_watermark = read_int(at + 2, 8);
    at += 2 + 8 + 8 + 8;
    int64_t aborted = read_int(at, 4);
    at += 4 + (aborted > 0 ? (size_t)aborted * 16 : 0) + 4;
    int64_t size = read_int(at, 4);
    if (size > 0) {
        found.size = (size_t)size;
        found.next_offset = offset_behind(at + 4, found.size);
    }
    return found;
}

static int produce_error(const char *data, const char *topic) {
    return (int)read_int(data + 4 + 4 + 2 + strlen(topic) + 4 + 4, 2);
}

static int offset_commit_error(const char *data, const char *topic) {
    return produce_error(data + 4, topic); /* behind the throttle time it is laid out alike */
}

static int64_t listed_offset(const char *data, const char *topic) {
    const char *at = data + 4 + 4 + 2 + strlen(topic) + 4 + 4;
    return read_int(at, 2) ? -1 : read_int(at + 2 + 8, 8);
}

#endif
