/* The interface of AGIOS over iogate's gate. Link with -liogate_agios; docs/agios.md has what differs from AGIOS itself, which is at
 * https://github.com/francielizanon/agios.
 *
 * Functions may be called from any thread, and inside callbacks. Those that say true or false say false for wrong input; agios_error()
 * has a line about it. In a child after fork they say false until it has called agios_init() itself.
 *
 * Callbacks are called by the library's one thread, one at a time. What they return is not looked at. */
#ifndef AGIOS_H
#define AGIOS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { RT_READ = 0, RT_WRITE = 1 };

/* Starts the library: what is called with one request that is to be processed, what is called with several contiguous ones (may be
 * null: then the first one, several times), a configuration file (null: /etc/agios.conf, or without it the defaults), and how
 * many queue ids there are (0: they mean nothing; with TWINS at most 4096). Without the first, each request must have a callback of
 * its own. False if it has been started. The file's text is read during the call; nothing of the caller's is kept. */
bool agios_init(void *process_request(int64_t identifier), void *process_requests(int64_t *identifiers, int32_t count),
                char *config_file, int32_t max_queue_id);

/* Stops it and forgets all requests; no callback is running any more when this returns, but the one that it is called in. May be
 * called when it is not started. */
void agios_exit(void);

/* Adds a request: by value; with a function of its own; with one that is given a pointer of the caller's, too. A null function is
 * agios_init()'s. `file_id` is read during the call. Which of the three is meant is seen by the number of arguments. */
bool agios_add_request(char *file_id, int32_t type, int64_t offset, int64_t len, int64_t identifier, int32_t queue_id);
bool agios_add_request_calling(char *file_id, int32_t type, int64_t offset, int64_t len, int64_t identifier, int32_t queue_id,
                               void *callback(int64_t identifier));
bool agios_add_request_with(char *file_id, int32_t type, int64_t offset, int64_t len, int64_t identifier, int32_t queue_id,
                            void *callback(int64_t identifier, void *user_info), void *user_info);
#define AGIOS_OF_EIGHT(a, b, c, d, e, f, g, h, name, ...) name
#define agios_add_request(...)                                                                     \
    AGIOS_OF_EIGHT(__VA_ARGS__, agios_add_request_with, agios_add_request_calling, agios_add_request, 0)(__VA_ARGS__)

/* A request that was given to a callback has been processed. False if none of this file, type, length and offset is out. */
bool agios_release_request(char *file_id, int32_t type, int64_t len, int64_t offset);

/* Takes a request back that was not given to a callback. False if there is none of this file, type, length and offset. */
bool agios_cancel_request(char *file_id, int32_t type, int64_t len, int64_t offset);

/* What was added and released since the last reset. */
struct agios_metrics_t {
    int64_t total_reqnb;               /* Requests that were added, */
    int64_t reads;                     /* of these reads, */
    int64_t writes;                    /* and writes. */
    int64_t avg_time_between_requests; /* ns; 0 for fewer than two. */
    int64_t avg_request_size;          /* Bytes. */
    int64_t max_request_size;          /* Bytes. */
    int64_t filenb;                    /* Files of these requests. */
    int64_t avg_offset_distance;       /* Bytes between the offsets of one request and the next of the same file. */
    int64_t served_bytes;              /* Of requests that were released. */
};

/* The metrics, which begin anew; to be freed with free(). Null if the library is not started. */
struct agios_metrics_t *agios_get_metrics_and_reset(void);

/* What went wrong last in this thread; not in AGIOS. Valid until the thread's next call. */
const char *agios_error(void);

#ifdef __cplusplus
}
#endif
#endif
