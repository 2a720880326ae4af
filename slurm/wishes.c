/* What a job is to get of iogate, as texts. */
#include "wishes.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool wrong(char *why, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, TEXT_MAX, format, arguments);
    va_end(arguments);
    return false;
}

/* A text that is built piece by piece; `full` once it is longer than it may be. */
struct built {
    char *text;
    size_t length;
    bool full;
};

static void add(struct built *built, const char *piece, size_t length) {
    if (built->length + length >= TEXT_MAX) {
        built->full = true;
        return;
    }
    memcpy(built->text + built->length, piece, length);
    built->length += length;
    built->text[built->length] = '\0';
}

/* Adds an item of a list, behind a separator if it is not the first. */
static void add_item(struct built *built, char separator, const char *item, size_t length) {
    if (built->length > 0) add(built, &separator, 1);
    add(built, item, length);
}

static bool finished(const struct built *built, const char *what, char *why) {
    if (!built->full) return true;
    return wrong(why, "%s: expected less than %d bytes, got more: name fewer or shorter ones", what, TEXT_MAX);
}

static bool is_printable(const char *text) {
    for (; *text; text++)
        if (iscntrl((unsigned char)*text)) return false;
    return true;
}

static bool copy(const char *what, const char *text, char *to, char *why) {
    struct built built = {to, 0, false};
    to[0] = '\0';
    add(&built, text, strlen(text));
    return finished(&built, what, why);
}

/* The next item of a list with commas, from *at on; false behind the last one. */
static bool next_item(const char **at, const char **item, size_t *length) {
    if (!*at) return false;
    *item = *at;
    const char *comma = strchr(*at, ',');
    *length = comma ? (size_t)(comma - *at) : strlen(*at);
    *at = comma ? comma + 1 : NULL;
    return true;
}

/* The directory of DIR[=NAME]: its length. */
static size_t directory_length(const char *item, size_t length) {
    const char *equals = memchr(item, '=', length);
    return equals ? (size_t)(equals - item) : length;
}

bool read_turns(const char *text, struct wishes *wishes, char *why) {
    static const char *expected = "expected DIR or DIR=NAME with an absolute DIR without a colon, several with commas, or none";
    if (!is_printable(text)) return wrong(why, "%s, got a control character", expected);
    const char *at = text, *item;
    size_t length;
    while (strcmp(text, "none") != 0 && next_item(&at, &item, &length)) {
        size_t directory = directory_length(item, length);
        bool has_empty_name = directory + 1 == length;
        if (directory == 0 || item[0] != '/' || memchr(item, ':', directory) || has_empty_name)
            return wrong(why, "%s, got '%s'", expected, text);
    }
    return copy("turns", text, wishes->turns, why);
}

bool read_files(const char *text, struct wishes *wishes, char *why) {
    static const char *expected = "expected a glob such as '*.ckpt' or '/scratch/run7/**', several with commas";
    const char *at = text, *item;
    size_t length;
    if (!is_printable(text) || strchr(text, ':')) return wrong(why, "%s, without a colon, got '%s'", expected, text);
    while (next_item(&at, &item, &length)) {
        if (length == 0) return wrong(why, "%s, got '%s'", expected, text);
        if (item[length - 1] == '/') return wrong(why, "%s, got '%s': add ** for all files below a directory", expected, text);
        /* The node's working directory is not that of the command, so nothing could say what it means. */
        bool is_rooted = item[0] == '/' || strncmp(item, "**/", 3) == 0;
        if (memchr(item, '/', length) && !is_rooted) return wrong(why, "%s, got '%s': a path begins with a slash", expected, text);
    }
    return copy("files", text, wishes->files, why);
}

bool read_weight(const char *text, unsigned *weight, char *why) {
    char *end = NULL;
    unsigned long found = isdigit((unsigned char)text[0]) ? strtoul(text, &end, 10) : 0;
    if (found < 1 || found > WEIGHT_MAX || *end != '\0')
        return wrong(why, "expected a whole number from 1 to %d, got '%s'", WEIGHT_MAX, text);
    *weight = (unsigned)found;
    return true;
}

/* The value of NAME=VALUE, if the argument is of that name. */
static const char *value_of(const char *text, const char *name) {
    size_t length = strlen(name);
    return strncmp(text, name, length) == 0 && text[length] == '=' ? text + length + 1 : NULL;
}

bool read_argument(const char *text, struct site *site, char *why) {
    struct {
        const char *name;
        char *to;
    } texts[] = {{"coord", site->coord}, {"auth", site->auth}, {"patience", site->patience}, {"library", site->library}};
    const char *value;
    if (strcmp(text, "required") == 0) {
        site->required = true;
        return true;
    }
    if ((value = value_of(text, "turns"))) return read_turns(value, &site->usual, why);
    if ((value = value_of(text, "files"))) return read_files(value, &site->usual, why);
    if ((value = value_of(text, "weight"))) return read_weight(value, &site->usual.weight, why);
    if ((value = value_of(text, "weight_max"))) return read_weight(value, &site->weight_max, why);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if ((value = value_of(text, texts[i].name)) && *value) return copy(texts[i].name, value, texts[i].to, why);
    return wrong(why, "expected coord=, auth=, turns=, files=, weight=, weight_max=, patience=, library= or required, got '%s'", text);
}

bool may_have(const struct site *site, unsigned weight, char *why) {
    if (site->weight_max == 0 || weight <= site->weight_max) return true;
    return wrong(why, "expected a weight of at most %u, which is what this site allows, got %u", site->weight_max, weight);
}

bool each_directory(const char *turns, bool (*each)(const char *directory, char *why), char *why) {
    const char *at = turns, *item;
    size_t length;
    char directory[TEXT_MAX];
    while (next_item(&at, &item, &length)) {
        length = directory_length(item, length);
        memcpy(directory, item, length);
        directory[length] = '\0';
        if (!each(directory, why)) return false;
    }
    return true;
}

bool places_of(const char *turns, const char *before, char *places, char *why) {
    struct built built = {places, 0, false};
    const char *at = turns, *item;
    size_t length;
    places[0] = '\0';
    while (next_item(&at, &item, &length))
        if (directory_length(item, length) < length) add_item(&built, ':', item, length);
    /* The first of two for one directory counts. */
    if (built.length > 0 && *before) add_item(&built, ':', before, strlen(before));
    return finished(&built, "turns", why);
}

bool files_of(const struct wishes *wishes, char *files, char *why) {
    struct built built = {files, 0, false};
    const char *list = *wishes->files ? wishes->files : wishes->turns, *at = list, *item;
    size_t length;
    files[0] = '\0';
    while (next_item(&at, &item, &length)) {
        if (list == wishes->files) {
            add_item(&built, ':', item, length);
            continue;
        }
        length = directory_length(item, length);
        while (length > 0 && item[length - 1] == '/') length--;
        add_item(&built, ':', "", 0);
        for (size_t i = 0; i < length; i++) {
            /* What means something in a glob stands for itself between brackets. */
            char quoted[] = {'[', item[i], ']'};
            bool is_special = strchr("*?[]", item[i]) != NULL;
            add(&built, is_special ? quoted : &item[i], is_special ? sizeof quoted : 1);
        }
        add(&built, "/**", 3);
    }
    return finished(&built, "files", why);
}

bool preload_of(const char *library, const char *before, char *preload, char *why) {
    struct built built = {preload, 0, false};
    size_t length = strlen(library);
    preload[0] = '\0';
    if (strpbrk(library, " :")) return wrong(why, "%s: LD_PRELOAD cannot name a path with a space or a colon", library);
    bool is_there = false;
    for (const char *at = before; *at; at += strspn(at, " :")) {
        size_t one = strcspn(at, " :");
        is_there |= one == length && strncmp(at, library, one) == 0;
        at += one;
    }
    if (!is_there) add_item(&built, ':', library, length);
    if (*before) add_item(&built, ':', before, strlen(before));
    return finished(&built, "LD_PRELOAD", why);
}
