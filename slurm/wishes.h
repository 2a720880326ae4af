/*
 * What a job is to get of iogate: what the site says in plugstack.conf, and what the job's options say. Pure: it takes texts, and gives
 * texts or says in one line what is wrong. spank.c asks Slurm and sets the environment.
 */
#ifndef IOGATE_WISHES_H
#define IOGATE_WISHES_H

#include <stdbool.h>
#include <stddef.h>

/* Slurm's programs have functions of such names too. */
#pragma GCC visibility push(hidden)

/* The largest weight, as in policies (crates/iogate-core/src/policy/mod.rs). */
#define WEIGHT_MAX 10000
/* The most that a setting or a message may be long, with its end. */
#define TEXT_MAX 4096

/* What the options and plugstack.conf can say; an empty text, or a weight of 0, is nothing said. */
struct wishes {
    char turns[TEXT_MAX]; /* DIR[=NAME],...; "none": no turns, whatever the site says */
    char files[TEXT_MAX]; /* PATTERN,... */
    unsigned weight;
};

/* What only the site says. */
struct site {
    struct wishes usual;       /* for jobs that do not say otherwise */
    unsigned weight_max;       /* no job has more */
    char coord[TEXT_MAX];      /* IOGATE_COORD */
    char auth[TEXT_MAX];       /* IOGATE_COORD_AUTH */
    char patience[TEXT_MAX];   /* IOGATE_PATIENCE */
    char library[TEXT_MAX];    /* where libiogate_preload.so is */
    bool required;             /* a job that asks for turns and cannot have them does not start */
};

/* Each returns false and says in `why` what was expected and what came. */
bool read_turns(const char *text, struct wishes *wishes, char *why);
bool read_files(const char *text, struct wishes *wishes, char *why);
bool read_weight(const char *text, unsigned *weight, char *why);
/* One argument of plugstack.conf, NAME=VALUE or a word. */
bool read_argument(const char *text, struct site *site, char *why);
/* Whether a job may have that weight. */
bool may_have(const struct site *site, unsigned weight, char *why);

/* Calls `each` with the directories of `turns` until it returns false, which is returned then. */
bool each_directory(const char *turns, bool (*each)(const char *directory, char *why), char *why);
/* IOGATE_PLACES: the names that `turns` gives to directories, before those that there are. */
bool places_of(const char *turns, const char *before, char *places, char *why);
/* IOGATE_FILES: the patterns, or all files below the directories of `turns` where there are none. */
bool files_of(const struct wishes *wishes, char *files, char *why);
/* LD_PRELOAD: the library before those that there are, and once. */
bool preload_of(const char *library, const char *before, char *preload, char *why);

/* Says something in at most TEXT_MAX bytes, and returns false. */
bool wrong(char *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

#pragma GCC visibility pop

#endif
