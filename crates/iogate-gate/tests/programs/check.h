/* What the test programs share. */
#ifndef CHECK_H
#define CHECK_H
#include <errno.h>
#include <iogate_gate.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #what,                 \
                    iogate_gate_error());                                                          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* It fails so, and the text has this in it. */
#define FAILS(call, code, part)                                                                    \
    do {                                                                                           \
        int got_ = (call);                                                                         \
        if (got_ != (code) || !strstr(iogate_gate_error(), part)) {                                \
            fprintf(stderr, "%s:%d: %s: %d (%s), expected %d and '%s'\n", __FILE__, __LINE__,      \
                    #call, got_, iogate_gate_error(), (int)(code), part);                          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define FILE_BYTES (1 << 20)

static inline iogate_request request_of(uint64_t file, uint32_t op, uint64_t offset, uint32_t bytes) {
    iogate_request request = {.size = sizeof request, .file = file, .op = op};
    request.offset = offset;
    request.bytes = bytes;
    return request;
}

/* The statistics, to be freed. */
#define STATS(of, form)                                                                            \
    ({                                                                                             \
        size_t needed_ = 0;                                                                        \
        FAILS(iogate_##form##_stats(of, NULL, 0, &needed_), ERANGE, "the room is 0");              \
        char *json_ = malloc(needed_);                                                             \
        CHECK(iogate_##form##_stats(of, json_, needed_, &needed_) == 0);                           \
        CHECK(strlen(json_) + 1 == needed_);                                                       \
        json_;                                                                                     \
    })
#endif
