/* What the fake NVIDIA libraries require of a POSIX system, for Windows. */
#include <io.h>
#include <string.h>
#include <windows.h>

#define O_CLOEXEC 0
#define sleep(seconds) Sleep((seconds)*1000)
/* raise(SIGSEGV) would end the process with status 3. A driver that crashes writes to a wrong address. */
#include <signal.h>
#define raise(number) ((void)(number), *(volatile int *)16 = 0, 0)

static inline char *strsep(char **text, const char *separators) {
    char *start = *text, *end;
    if (!start) return NULL;
    end = start + strcspn(start, separators);
    *text = *end ? end + 1 : NULL;
    *end = 0;
    return start;
}
