/* Hide this machine's GPUs and container from a process and its children with LD_PRELOAD.
 *
 * Tests simulate other machines. Paths in HIDDEN do not exist, NODES are not listed, and driver libraries are found
 * only in LD_LIBRARY_PATH.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const HIDDEN[] = {"/sys/bus/pci/devices", "/sys/class/kfd", "/proc/driver/nvidia", "/dev/nvidia",
                                     "/dev/kfd", "/dev/dri", "/dev/dxg", "/.dockerenv", "/run/.containerenv",
                                     "/run/systemd/container", "/proc/self/cgroup", "/proc/self/mountinfo"};
static const char *const NODES[] = {"nvidiactl", "nvidia-caps", "nvidia-modeset", "nvidia-uvm"};
static const char *const LIBRARIES[] = {"libcuda.so.1", "libnvidia-ml.so.1"};
static __thread char message[128];
static void *(*real_dlopen)(const char *, int);
static char *(*real_dlerror)(void);

/* Resolved early, because a symbol lookup clears the last error. */
__attribute__((constructor)) static void find(void) {
    real_dlopen = dlsym(RTLD_NEXT, "dlopen");
    real_dlerror = dlsym(RTLD_NEXT, "dlerror");
}

static int hidden(const char *path) {
    for (size_t at = 0; at < sizeof HIDDEN / sizeof *HIDDEN; at++)
        if (strncmp(path, HIDDEN[at], strlen(HIDDEN[at])) == 0) {
            errno = ENOENT;
            return 1;
        }
    return 0;
}

#define OPEN(name)                                                     \
    int name(const char *path, int flags, ...) {                       \
        va_list rest;                                                  \
        va_start(rest, flags);                                         \
        int mode = va_arg(rest, int);                                  \
        va_end(rest);                                                  \
        int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, #name); \
        return hidden(path) ? -1 : real(path, flags, mode);            \
    }
OPEN(open)
OPEN(open64)

DIR *opendir(const char *path) {
    DIR *(*real)(const char *) = dlsym(RTLD_NEXT, "opendir");
    return hidden(path) ? NULL : real(path);
}

ssize_t readlink(const char *path, char *target, size_t size) {
    ssize_t (*real)(const char *, char *, size_t) = dlsym(RTLD_NEXT, "readlink");
    return hidden(path) ? -1 : real(path, target, size);
}

static int is_node(const char *name) {
    if (strncmp(name, "nvidia", 6) == 0 && isdigit((unsigned char)name[6]))
        return 1;
    for (size_t at = 0; at < sizeof NODES / sizeof *NODES; at++)
        if (strncmp(name, NODES[at], strlen(NODES[at])) == 0)
            return 1;
    return 0;
}

#define READDIR(name, entry)                                     \
    struct entry *name(DIR *folder) {                            \
        struct entry *(*real)(DIR *) = dlsym(RTLD_NEXT, #name);  \
        struct entry *found;                                     \
        do                                                       \
            found = real(folder);                                \
        while (found && is_node(found->d_name));                 \
        return found;                                            \
    }
READDIR(readdir, dirent)
READDIR(readdir64, dirent64)

static int played(const char *library) {
    const char *folder = getenv("LD_LIBRARY_PATH");
    while (folder && *folder) {
        int length = strcspn(folder, ":");
        char path[4096];
        snprintf(path, sizeof path, "%.*s/%s", length, folder, library);
        if (access(path, F_OK) == 0)
            return 1;
        folder += length + (folder[length] == ':');
    }
    return 0;
}

void *dlopen(const char *library, int flags) {
    for (size_t at = 0; library && at < sizeof LIBRARIES / sizeof *LIBRARIES; at++)
        if (strcmp(library, LIBRARIES[at]) == 0 && !played(library)) {
            snprintf(message, sizeof message, "%s: cannot open shared object file: No such file or directory", library);
            return NULL;
        }
    /* A tail call, because the loader uses the search path of the calling library. */
    return real_dlopen(library, flags);
}

char *dlerror(void) {
    static __thread char told[sizeof message];
    if (!*message)
        return real_dlerror();
    strcpy(told, message);
    *message = 0;
    return told;
}
