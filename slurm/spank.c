/*
 * Slurm's side of iogate: options of srun, sbatch and salloc, which give a job's programs what `iogate run` gives to one that it starts
 * (crates/iogate/src/commands/run.rs): the library for turns, and the variables that say which files, places, coordinator and weight.
 *
 * What is wrong in an option is said where the job is submitted. On the nodes everything is looked at again, as who submits may have
 * another plugstack.conf; what holds there is the node's.
 */
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "wishes.h"

SPANK_PLUGIN(iogate, 1)

/* How long a coordinator is tried to be reached, where a job may not start without one. */
#define ANSWER_MS 5000

enum option { TURNS, FILES, WEIGHT };

static struct site site;
/* What this job's options say. */
static struct wishes asked;

/* Says what is wrong to whoever reads the command's standard error. */
static int refuse(const char *of, const char *why) {
    slurm_error("iogate: %s: %s", of, why);
    return -1;
}

static int set_option(int option, const char *text, int is_remote) {
    char why[TEXT_MAX] = "expected a value";
    (void)is_remote;
    if (!text) text = "";
    switch (option) {
    case TURNS:
        return read_turns(text, &asked, why) ? 0 : refuse("--iogate-turns", why);
    case FILES:
        return read_files(text, &asked, why) ? 0 : refuse("--iogate-files", why);
    default:
        return read_weight(text, &asked.weight, why) ? 0 : refuse("--iogate-weight", why);
    }
}

static struct spank_option options[] = {
    {"iogate-turns", "DIR[=NAME]",
     "the job takes turns with others for what it writes below these directories, separated by commas; none: it takes none", 1, TURNS,
     set_option},
    {"iogate-files", "PATTERN", "which files count there, separated by commas, as in '*.ckpt' (all, unless given)", 1, FILES, set_option},
    {"iogate-weight", "N", "the job's share beside others, from 1 on, as far as the site allows", 1, WEIGHT, set_option},
};

int slurm_spank_init(spank_t spank, int count, char *arguments[]) {
    spank_context_t context = spank_context();
    char why[TEXT_MAX];
    if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR && context != S_CTX_REMOTE) return 0;
    for (int i = 0; i < count; i++)
        if (!read_argument(arguments[i], &site, why)) return refuse("plugstack.conf", why);
    if (!may_have(&site, site.usual.weight, why)) return refuse("plugstack.conf", why);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (spank_option_register(spank, &options[i]) != ESPANK_SUCCESS) return refuse(options[i].name, "Slurm does not take this option");
    return 0;
}

/* A variable of the command's environment where it is submitted, of the job's on a node. Empty if there is none. */
static void variable(spank_t spank, const char *name, char *value) {
    value[0] = '\0';
    if (spank_context() == S_CTX_REMOTE) {
        if (spank_getenv(spank, name, value, TEXT_MAX) != ESPANK_SUCCESS) value[0] = '\0';
    } else if (getenv(name)) {
        snprintf(value, TEXT_MAX, "%s", getenv(name));
    }
}

/* The weight that a job is to have; 0: none is said. False: it is none, or more than it may have; it is then what it may have at most. */
static bool weight_of(spank_t spank, unsigned *weight, const char **of, char *why) {
    char text[TEXT_MAX];
    *of = "--iogate-weight";
    *weight = asked.weight;
    if (*weight == 0) {
        variable(spank, "IOGATE_WEIGHT", text);
        *of = "IOGATE_WEIGHT";
        *weight = site.usual.weight;
        if (*text && !read_weight(text, weight, why)) return false;
    }
    if (may_have(&site, *weight, why)) return true;
    *weight = site.weight_max;
    return false;
}

/* Where the job is submitted: whether it may have its weight is known already. */
int slurm_spank_init_post_opt(spank_t spank, int count, char *arguments[]) {
    char why[TEXT_MAX];
    const char *of;
    unsigned weight;
    (void)count, (void)arguments;
    if (spank_context() != S_CTX_LOCAL && spank_context() != S_CTX_ALLOCATOR) return 0;
    return weight_of(spank, &weight, &of, why) ? 0 : refuse(of, why);
}

static bool is_directory(const char *path, char *why) {
    struct stat status;
    if (stat(path, &status) != 0) return wrong(why, "%s: %s on this node", path, strerror(errno));
    return S_ISDIR(status.st_mode) || wrong(why, "%s: this is not a directory on this node", path);
}

/* Finds the library. */
static bool find_library(char *path, char *why) {
    const char *usual[] = {"/usr/lib/iogate/libiogate_preload.so", "/usr/local/lib/libiogate_preload.so", NULL};
    const char *said[] = {site.library, NULL};
    for (const char **one = *site.library ? said : usual; *one; one++) {
        char found[PATH_MAX];
        if (access(*one, R_OK) == 0 && realpath(*one, found)) return snprintf(path, TEXT_MAX, "%s", found) < TEXT_MAX;
    }
    return wrong(why, "there is no %s on this node: install iogate there, or set library= in plugstack.conf",
                 *site.library ? site.library : "libiogate_preload.so");
}

static bool connects(const struct sockaddr *address, socklen_t length) {
    int one = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (one < 0) return false;
    int error = connect(one, address, length) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
        struct pollfd ready = {one, POLLOUT, 0};
        socklen_t size = sizeof error;
        if (poll(&ready, 1, ANSWER_MS) != 1 || getsockopt(one, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = ETIMEDOUT;
    }
    close(one);
    return error == 0;
}

/* Whether somebody listens at HOST:PORT or unix:PATH. */
static bool is_listening(char *endpoint) {
    if (strncmp(endpoint, "unix:", 5) == 0) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        if (strlen(endpoint + 5) >= sizeof address.sun_path) return false;
        strcpy(address.sun_path, endpoint + 5);
        return connects((struct sockaddr *)&address, sizeof address);
    }
    char *port = strrchr(endpoint, ':');
    if (!port) return false;
    *port++ = '\0';
    size_t length = strlen(endpoint);
    if (endpoint[0] == '[' && endpoint[length - 1] == ']') {
        endpoint[length - 1] = '\0';
        endpoint++;
    }
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    bool is_there = false;
    if (getaddrinfo(endpoint, port, &hints, &found) != 0) return false;
    for (struct addrinfo *one = found; one && !is_there; one = one->ai_next) is_there = connects(one->ai_addr, one->ai_addrlen);
    freeaddrinfo(found);
    return is_there;
}

/* Whether one of the coordinators is there. */
static bool is_coordinated(const char *coordinators, char *why) {
    char list[TEXT_MAX], *rest = NULL;
    snprintf(list, sizeof list, "%s", coordinators);
    for (char *one = strtok_r(list, ", ", &rest); one; one = strtok_r(NULL, ", ", &rest))
        if (is_listening(one)) return true;
    return wrong(why, "no coordinator answers at %s, and this site lets no job start without one", coordinators);
}

/* What the job's programs get besides their weight. False: something of iogate is not there. */
static bool give_turns(spank_t spank, const struct wishes *wishes, bool is_asked, char *why) {
    char policy[TEXT_MAX], coord[TEXT_MAX], old[TEXT_MAX], places[TEXT_MAX], files[TEXT_MAX], library[TEXT_MAX], preload[TEXT_MAX];
    variable(spank, "IOGATE_POLICY", policy);
    variable(spank, "IOGATE_COORD", coord);
    if (!*coord) strcpy(coord, site.coord);
    if (strcmp(policy, "none") == 0) return true;
    if (!*coord && strcmp(policy, "backoff") != 0)
        return wrong(why, "nobody says where a coordinator is: set coord= in plugstack.conf, or IOGATE_COORD");
    if (!find_library(library, why)) return false;
    if (site.required && *coord && strcmp(policy, "backoff") != 0 && !is_coordinated(coord, why)) return false;

    variable(spank, "IOGATE_PLACES", old);
    if (!places_of(wishes->turns, old, places, why) || !files_of(wishes, files, why)) return false;
    variable(spank, "LD_PRELOAD", old);
    if (!preload_of(library, old, preload, why)) return false;
    /* What a job says by its environment is its own wish, and the site's is for jobs that say nothing. */
    struct {
        const char *name, *value;
        int is_overwritten;
    } variables[] = {
        {"IOGATE_COORD", coord, 0},
        {"IOGATE_COORD_AUTH", site.auth, 0},
        {"IOGATE_PATIENCE", site.patience, 0},
        {"IOGATE_STRICT", site.required ? "1" : "", 1},
        {"IOGATE_PLACES", places, 1},
        {"IOGATE_FILES", files, is_asked},
        {"LD_PRELOAD", preload, 1},
    };
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        if (!*variables[i].value) continue;
        spank_err_t error = spank_setenv(spank, variables[i].name, variables[i].value, variables[i].is_overwritten);
        if (error != ESPANK_SUCCESS && error != ESPANK_ENV_EXISTS)
            return wrong(why, "Slurm does not set %s: %s", variables[i].name, spank_strerror(error));
    }
    return true;
}

/* Why this node's tasks are not to begin; empty: they are. */
static char refused[2 * TEXT_MAX];

static int refuse_tasks(const char *of, const char *why) {
    snprintf(refused, sizeof refused, "%s: %s", of, why);
    return 0;
}

/*
 * On each node, before its tasks begin. What is wrong here is for slurm_spank_task_init to say: if this call fails, the step ends, too, but
 * srun with status 0.
 */
int slurm_spank_user_init(spank_t spank, int count, char *arguments[]) {
    char why[TEXT_MAX], text[16];
    const char *of;
    unsigned weight;
    uint32_t step = 0, node = 0;
    (void)count, (void)arguments;
    spank_get_item(spank, S_JOB_STEPID, &step);
    spank_get_item(spank, S_JOB_NODEID, &node);
    if (step == SLURM_EXTERN_CONT) return 0;
    bool may = weight_of(spank, &weight, &of, why);
    if (weight > 0) {
        /* Also if the job does not start for it: where Slurm is told that this plugin is optional, it goes on. */
        snprintf(text, sizeof text, "%u", weight);
        spank_setenv(spank, "IOGATE_WEIGHT", text, 1);
    }
    if (!may) return refuse_tasks(of, why);

    bool is_asked = *asked.turns || *asked.files;
    struct wishes wishes = is_asked ? asked : site.usual;
    if (!*wishes.turns) strcpy(wishes.turns, site.usual.turns);
    /* The step of a batch job has what the job was given. IOGATE_POLICY=none would hold for steps of it that ask for turns, too. */
    if (strcmp(asked.turns, "none") == 0) spank_unsetenv(spank, "IOGATE_FILES");
    if (strcmp(wishes.turns, "none") == 0 || (!*wishes.turns && !*wishes.files)) return 0;
    /* A directory of the site's may be on other nodes only. */
    if (*asked.turns && !each_directory(asked.turns, is_directory, why)) return refuse_tasks("--iogate-turns", why);
    if (give_turns(spank, &wishes, is_asked, why)) return 0;
    if (site.required) return refuse_tasks("no turns", why);
    if (!is_asked)
        slurm_verbose("iogate: no turns: %s", why);
    else if (node == 0)
        slurm_error("iogate: going on without turns: %s", why);
    return 0;
}

/* In each task, before its program. One of a node says what is wrong. */
int slurm_spank_task_init(spank_t spank, int count, char *arguments[]) {
    int task = 0;
    (void)count, (void)arguments;
    if (!*refused) return 0;
    spank_get_item(spank, S_TASK_ID, &task);
    if (task == 0) slurm_error("iogate: %s", refused);
    return -1;
}
