/* An LD_PRELOAD library in which the Nth call of a function fails.

LAB_CALL is the function, LAB_NUMBER is N, and LAB_ERRNO is the error. LAB_CALLS is a
file that receives a byte for each call. Child processes and device nodes, which are on no
disk, are not affected. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static const char *call;
static int number, seen, error, calls;

__attribute__((constructor)) static void start(void)
{
    call = getenv("LAB_CALL");
    number = atoi(getenv("LAB_NUMBER"));
    error = atoi(getenv("LAB_ERRNO"));
    calls = open(getenv("LAB_CALLS"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    unsetenv("LD_PRELOAD");
}

static int fails(const char *name)
{
    if (!call || strcmp(call, name))
        return 0;
    dprintf(calls, ".");
    errno = error;
    return ++seen == number;
}

#define WRAP(name, parameters, arguments) \
    int name parameters \
    { \
        static int(*real) parameters; \
        if (!real) \
            real = dlsym(RTLD_NEXT, #name); \
        return fails(#name) ? -1 : real arguments; \
    }

WRAP(rename, (const char *from, const char *to), (from, to))
WRAP(mkdir, (const char *path, mode_t mode), (path, mode))
WRAP(rmdir, (const char *path), (path))
WRAP(unlink, (const char *path), (path))
WRAP(unlinkat, (int folder, const char *path, int flags), (folder, path, flags))
WRAP(linkat, (int a, const char *from, int b, const char *to, int flags), (a, from, b, to, flags))
WRAP(fsync, (int file), (file))
WRAP(syncfs, (int file), (file))
WRAP(flock, (int file, int operation), (file, operation))

int open64(const char *path, int flags, ...)
{
    static int (*real)(const char *, int, ...);
    if (!real)
        real = dlsym(RTLD_NEXT, "open64");
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    int is_device = !strncmp(path, "/dev/", 5);
    int is_written = !is_device && flags & (O_WRONLY | O_RDWR);
    int is_own = strstr(path, "/project/") || strstr(path, "/state/");
    if (is_written ? fails("write") : is_own && !(flags & O_DIRECTORY) && fails("read"))
        return -1;
    return real(path, flags, mode);
}
