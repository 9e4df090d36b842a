#pragma once
#include <stddef.h>

#define RTLD_LAZY 1
#define RTLD_NOW 2
#define RTLD_NOLOAD 4
#define RTLD_DEFAULT NULL
#define RTLD_NEXT NULL

typedef struct {
    const char *dli_fname;
} Dl_info;

static inline void *dlsym(void *library, const char *name) { return (void)library, (void)name, NULL; }
static inline void *dlopen(const char *name, int flags) { return (void)name, (void)flags, NULL; }
static inline int dladdr(void *address, Dl_info *info) { return (void)address, (void)info, 0; }
