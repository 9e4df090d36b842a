/* A fake libcuda, controlled by the lab's file (lab.h). It follows these rules of the real one:
 * - An entry of CUDA_VISIBLE_DEVICES is its leading digits, or the beginning of exactly one UUID. The list ends at the
 *   first unknown entry, and is empty if an entry is repeated (see torch/cuda/__init__.py).
 * - A process uses one MIG slice and no other device.
 * - Kernel errors occur at synchronization and persist.
 * - PTX is loaded as text.
 * Device memory is this process's memory. The kernel computes the same as src/gpuinstall/machine/nvidia/kernel.ptx.
 *
 * Machine: cuda, cu_init, cu_hang_s, cu_crash, cu_abort, start_ms (start time of each GPU for the first process).
 * GPU: cu_init (for every process that it is visible to), hidden_from_cuda, cuda_error, cuda_hang_s, cuda_crash,
 * compute_mode (3: one process at a time), context_mib (memory of a context), free_mib, ptx_error, launch_error,
 * wrong_result.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/file.h>
#include <unistd.h>

#include "lab.h"

enum {
    INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
    DEVICE_UNAVAILABLE = 46, INVALID_CONTEXT = 201, INVALID_PTX = 218, NOT_FOUND = 500,
};
#define ENTRY "multiply_and_add_index"
#define MOST 64
enum { EXCLUSIVE_PROCESS = 3 };

static struct device { lab_record card, slice; } devices[MOST];
static int visible, initialized, current = -1, pending;
static size_t used[MOST];

static lab_record described(int device) {
    return devices[device].slice ? devices[device].slice : devices[device].card;
}

static int valid(int device) { return initialized && device >= 0 && device < visible; }

static void hang_or_crash(lab_record record, const char *hang, const char *crash) {
    if (lab_number(record, crash, 0)) raise(SIGSEGV);
    sleep((unsigned)lab_number(record, hang, 0));
}

static int add(lab_record card, lab_record slice) {
    if (visible < MOST) devices[visible++] = (struct device){card, slice};
    return 1;
}

/* The first slice that this process may use. */
static lab_record own_slice(int gpu) {
    for (int part = 0; part < lab_slices(gpu); part++)
        if (!lab_number(lab_slice(gpu, part), "nvml_error", 0)) return lab_slice(gpu, part);
    return NULL;
}

/* A GPU in MIG mode is its first slice, or absent. */
static int add_card(int gpu) {
    int mig = (int)lab_number(lab_gpu(gpu), "mig", 0);
    if (lab_number(lab_gpu(gpu), "hidden_from_cuda", 0) || (mig && !own_slice(gpu))) return 0;
    return add(lab_gpu(gpu), mig ? own_slice(gpu) : NULL);
}

static int named(lab_record record, const char *name) {
    char uuid[128];
    lab_text(record, "uuid", "", uuid, sizeof uuid);
    return strncmp(uuid, name, strlen(name)) == 0;
}

static int ordinal_of(int ordinal) {
    for (int gpu = 0; gpu < lab_gpus(); gpu++) {
        int mig = (int)lab_number(lab_gpu(gpu), "mig", 0);
        if (lab_number(lab_gpu(gpu), "hidden_from_cuda", 0) || (mig && !own_slice(gpu))) continue;
        if (ordinal-- == 0) return gpu;
    }
    return -1;
}

/* Return the ordinal in an entry's leading digits, or -1. */
static long ordinal_in(const char *name) { return *name >= '0' && *name <= '9' ? strtol(name, NULL, 10) : -1; }

/* Find the only GPU or slice whose UUID has this prefix; an ambiguous prefix matches none. */
static int add_by_uuid(const char *name) {
    lab_record card = NULL, slice = NULL;
    int found = 0;
    for (int gpu = 0; gpu < lab_gpus(); gpu++) {
        if (named(lab_gpu(gpu), name)) found++, card = lab_gpu(gpu), slice = lab_number(card, "mig", 0) ? own_slice(gpu) : NULL;
        for (int part = 0; part < lab_slices(gpu); part++)
            if (named(lab_slice(gpu, part), name)) found++, card = lab_gpu(gpu), slice = lab_slice(gpu, part);
    }
    if (found != 1 || lab_number(card, "hidden_from_cuda", 0) || (lab_number(card, "mig", 0) && !slice)) return 0;
    return add(card, slice);
}

static int add_named(const char *name) {
    long ordinal = ordinal_in(name);
    if (ordinal >= 0) return ordinal_of((int)ordinal) >= 0 && add_card(ordinal_of((int)ordinal));
    if (strncmp(name, "GPU-", 4) && strncmp(name, "MIG-", 4)) return 0;
    return add_by_uuid(name);
}

static int is_repeated(int last) {
    for (int i = 0; i < last; i++)
        if (devices[i].card == devices[last].card && devices[i].slice == devices[last].slice) return 1;
    return 0;
}

static void one_slice_alone(void) {
    for (int i = 0; i < visible; i++)
        if (devices[i].slice) {
            devices[0] = devices[i];
            visible = 1;
        }
}

static void enumerate(void) {
    char names[4096];
    const char *wanted = getenv("CUDA_VISIBLE_DEVICES");
    visible = 0;
    if (!wanted)
        for (int gpu = 0; gpu < lab_gpus(); gpu++) add_card(gpu);
    else {
        char *rest = names;
        snprintf(names, sizeof names, "%s", wanted);
        for (char *name; (name = strsep(&rest, ",")) && add_named(name);)
            if (is_repeated(visible - 1)) {
                visible = 0;
                break;
            }
    }
    one_slice_alone();
}

int cuInit(unsigned flags) {
    long refusal = lab_number(lab_machine(), "cu_init", 0);
    if (flags) return INVALID_VALUE;
    hang_or_crash(lab_machine(), "cu_hang_s", "cu_crash");
    if (lab_number(lab_machine(), "cu_abort", 0)) abort();
    if (refusal) return (int)refusal;
    lab_start();
    enumerate();
    for (int i = 0; i < visible; i++)
        if ((refusal = lab_number(devices[i].card, "cu_init", 0))) return (int)refusal;
    initialized = visible > 0;
    return initialized ? 0 : NO_DEVICE;
}

int cuDriverGetVersion(int *version) {
    *version = (int)lab_number(lab_machine(), "cuda", 13000);
    return 0;
}

int cuDeviceGetCount(int *count) {
    *count = visible;
    return initialized ? 0 : NOT_INITIALIZED;
}

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return !initialized ? NOT_INITIALIZED : valid(ordinal) ? 0 : INVALID_DEVICE;
}

int cuDeviceGetName(char *name, int length, int device) {
    if (!valid(device)) return INVALID_DEVICE;
    lab_text(devices[device].card, "name", "NVIDIA", name, (size_t)length);
    return 0;
}

static int uuid_bytes(unsigned char *out, lab_record record) {
    char uuid[128];
    unsigned digit;
    int digits = 0;
    lab_text(record, "uuid", "", uuid, sizeof uuid);
    for (char *at = uuid + 4; *at && digits < 32; at++) {
        if (sscanf((char[]){*at, 0}, "%1x", &digit) != 1) continue;
        out[digits / 2] = (unsigned char)(digits % 2 ? out[digits / 2] | digit : digit << 4);
        digits++;
    }
    return 0;
}

int cuDeviceGetUuid(unsigned char *uuid, int device) {
    return valid(device) ? uuid_bytes(uuid, devices[device].card) : INVALID_DEVICE;
}

int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    return valid(device) ? uuid_bytes(uuid, described(device)) : INVALID_DEVICE;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    int major, minor;
    if (!valid(device)) return INVALID_DEVICE;
    lab_capability(devices[device].card, &major, &minor);
    *value = attribute == 75 ? major : attribute == 76 ? minor : 0;
    return 0;
}

int cuDeviceGetPCIBusId(char *bus, int length, int device) {
    if (!valid(device)) return INVALID_DEVICE;
    lab_text(devices[device].card, "bus", "0000:00:00.0", bus, (size_t)length);
    return 0;
}

static size_t free_bytes(int device) {
    long mib = lab_number(described(device), "free_mib", lab_number(described(device), "memory_mib", 0));
    return ((size_t)mib << 20) - used[device];
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    if (!valid(device)) return INVALID_DEVICE;
    *bytes = (size_t)lab_number(described(device), "memory_mib", 0) << 20;
    return 0;
}

/* Lock a GPU until this process ends; 0 if another process has locked it. */
static int alone(int device) {
    char path[4096], uuid[128];
    lab_text(devices[device].card, "uuid", "", uuid, sizeof uuid);
    snprintf(path, sizeof path, "%s.%s", getenv("LAB_GPUS"), uuid);
    int file = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    return file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0;
}

/* A context is represented by its device. */
int cuDevicePrimaryCtxRetain(void **context, int device) {
    if (!valid(device)) return INVALID_DEVICE;
    hang_or_crash(devices[device].card, "cuda_hang_s", "cuda_crash");
    *context = &devices[device];
    if (lab_number(devices[device].card, "compute_mode", 0) == EXCLUSIVE_PROCESS && !alone(device))
        return DEVICE_UNAVAILABLE;
    size_t own = (size_t)lab_number(devices[device].card, "context_mib", 0) << 20;
    if (own > free_bytes(device)) return OUT_OF_MEMORY;
    used[device] += own;
    return (int)lab_number(devices[device].card, "cuda_error", 0);
}

int cuCtxSetCurrent(void *context) {
    current = context ? (int)((struct device *)context - devices) : -1;
    return 0;
}

static int fact_of_card(const char *key) { return (int)lab_number(devices[current].card, key, 0); }

int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    if (current < 0) return INVALID_CONTEXT;
    if (pending) return pending;
    if (bytes > free_bytes(current)) return OUT_OF_MEMORY;
    used[current] += bytes;
    *address = (uint64_t)(uintptr_t)malloc(bytes);
    return 0;
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
    if (current < 0) return INVALID_CONTEXT;
    memcpy((void *)(uintptr_t)to, from, bytes);
    return pending;
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
    if (current < 0) return INVALID_CONTEXT;
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return pending;
}

/* A module is represented by a copy of its text. */
int cuModuleLoadData(void **module, const void *image) {
    if (current < 0) return INVALID_CONTEXT;
    if (fact_of_card("ptx_error")) return fact_of_card("ptx_error");
    *module = strdup(image);
    return strstr(image, ".version") && strstr(image, ".target") ? 0 : INVALID_PTX;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
    char entry[256];
    snprintf(entry, sizeof entry, ".entry %s(", name);
    *function = strstr(module, entry);
    return *function && strcmp(name, ENTRY) == 0 ? 0 : NOT_FOUND;
}

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
    (void)shared, (void)stream, (void)extra;
    if (current < 0) return INVALID_CONTEXT;
    if (!function || gy != 1 || gz != 1 || by != 1 || bz != 1 || bx > 1024) return INVALID_VALUE;
    uint32_t *data = (uint32_t *)(uintptr_t)*(uint64_t *)arguments[0];
    uint32_t factor = *(uint32_t *)arguments[1], count = *(uint32_t *)arguments[2];
    pending = fact_of_card("launch_error");
    for (uint32_t i = 0; !pending && i < gx * bx && i < count; i++) data[i] = data[i] * factor + i;
    if (count && fact_of_card("wrong_result")) data[count / 2] ^= 1;
    return 0;
}

/* The CUDA runtime requests every function by its unversioned name, which is the newest version. It also requests
 * undocumented tables, which are missing here, so it only calls cuInit. */
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *found) {
    char newest[256];
    Dl_info own;
    (void)version, (void)flags;
    snprintf(newest, sizeof newest, "%s_v2", name);
    void *library = dladdr((void *)cuInit, &own) ? dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    *function = library ? dlsym(library, newest) : NULL;
    if (library && !*function) *function = dlsym(library, name);
    if (found) *found = *function ? 0 : 1;
    return *function ? 0 : NOT_FOUND;
}

int cuGetExportTable(const void **table, const void *id) {
    (void)id;
    *table = NULL;
    return NOT_FOUND;
}

int cuCtxSynchronize(void) { return current < 0 ? INVALID_CONTEXT : pending; }
