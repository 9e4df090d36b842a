/* A fake libnvidia-ml.so.1, controlled by the lab's file (lab.h). Numbers are from NVIDIA's nvml.h.
 *
 * Machine: driver, cuda, nvml_init, nvml_hang_s, nvml_crash (1: in nvmlInit), nvml_crash_at, nvml_hang_at (a GPU),
 * start_ms (start time of each GPU for the first process), driver_bytes (the buffer size that the version requires).
 * GPU: name, uuid, cc, memory_mib (0: not supported, as for unified memory), pci, bus, mig, nvml_error (the result of
 * every query), nvml_handle, nvml_name, nvml_uuid, nvml_pci, nvml_memory, nvml_capability, nvml_mode, nvml_mig_mode
 * (the result of one query), fabric (absent: not supported), compute_mode, remap_pending, remap_failed, nvml_hidden
 * (1: on the bus only).
 * Slice: nvml_error (if this process cannot open its files).
 */
#include <signal.h>
#include <stdint.h>
#include <unistd.h>

#include "lab.h"

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };

typedef int nvmlReturn_t;
typedef const struct handle { int gpu, slice; } *nvmlDevice_t; /* slice -1: the whole GPU */

typedef struct { unsigned long long total, free, used; } nvmlMemory_t;

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

static struct handle handles[LAB_RECORDS];
static int used;

static nvmlDevice_t handle(int gpu, int slice) {
    struct handle *made = &handles[used++ % LAB_RECORDS];
    made->gpu = gpu, made->slice = slice;
    return made;
}

/* Return the record of the n-th GPU that NVML lists. */
static int listed(unsigned index) {
    for (int gpu = 0; gpu < lab_gpus(); gpu++)
        if (!lab_number(lab_gpu(gpu), "nvml_hidden", 0) && index-- == 0) return gpu;
    return -1;
}

/* Return the result of a query: its own number, or the GPU's default. */
static nvmlReturn_t refused(nvmlDevice_t device, const char *question) {
    char key[64];
    snprintf(key, sizeof key, "nvml_%s", question);
    return lab_number(lab_gpu(device->gpu), key, lab_number(lab_gpu(device->gpu), "nvml_error", 0));
}

static lab_record record(nvmlDevice_t device) {
    return device->slice < 0 ? lab_gpu(device->gpu) : lab_slice(device->gpu, device->slice);
}

static nvmlReturn_t text(lab_record from, const char *key, char *out, unsigned size) {
    lab_text(from, key, "", out, size);
    return SUCCESS;
}

nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    sleep(lab_number(lab_machine(), "nvml_hang_s", 0));
    if (lab_number(lab_machine(), "nvml_crash", 0)) raise(SIGSEGV);
    lab_start();
    return lab_number(lab_machine(), "nvml_init", 0);
}
nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
nvmlReturn_t nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(nvmlReturn_t error) { return error ? "an error of the lab" : "Success"; }

nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned size) {
    if (lab_number(lab_machine(), "driver_bytes", 0) > size) return INSUFFICIENT_SIZE;
    return text(lab_machine(), "driver", out, size);
}
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = lab_number(lab_machine(), "cuda", 0);
    return SUCCESS;
}
nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    for (*count = 0; listed(*count) >= 0; ++*count) {}
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    int gpu = listed(index);
    if (gpu < 0) return INVALID;
    if (lab_number(lab_machine(), "nvml_crash_at", -1) == gpu) raise(SIGSEGV);
    if (lab_number(lab_machine(), "nvml_hang_at", -1) == gpu) sleep(600);
    *device = handle(gpu, -1);
    return refused(*device, "handle");
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *out, unsigned size) {
    char profile[64];
    text(lab_gpu(device->gpu), "name", out, size);
    if (device->slice >= 0) {
        lab_text(record(device), "profile", "", profile, sizeof profile);
        snprintf(out + strlen(out), size - strlen(out), " MIG %s", profile);
    }
    return refused(device, "name");
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *out, unsigned size) {
    text(record(device), "uuid", out, size);
    return refused(device, "uuid");
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info) {
    unsigned vendor = 0, number = 0;
    char id[16], bus[16];
    lab_text(lab_gpu(device->gpu), "pci", "0:0", id, sizeof id);
    lab_text(lab_gpu(device->gpu), "bus", "0000:00:00.0", bus, sizeof bus);
    sscanf(id, "%x:%x", &vendor, &number);
    memset(info, 0, sizeof *info);
    info->pciDeviceId = number << 16 | vendor;
    snprintf(info->busId, sizeof info->busId, "0000%s", bus); /* NVML writes eight digits of domain */
    return refused(device, "pci");
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    long total = lab_number(record(device), "memory_mib", 0), free = lab_number(record(device), "free_mib", total);
    memory->total = (unsigned long long)total << 20, memory->free = (unsigned long long)free << 20;
    memory->used = memory->total - memory->free;
    return total ? refused(device, "memory") : NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    lab_capability(lab_gpu(device->gpu), major, minor);
    return refused(device, "capability");
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned *mode) {
    *mode = lab_number(record(device), "compute_mode", 0);
    return refused(device, "mode");
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    *current = *pending = lab_number(record(device), "mig", 0);
    return refused(device, "mig_mode");
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count) {
    (void)device;
    *count = 7;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *slice) {
    if ((int)index >= lab_slices(device->gpu)) return NOT_FOUND;
    if (lab_number(lab_slice(device->gpu, index), "nvml_error", 0))
        return lab_number(lab_slice(device->gpu, index), "nvml_error", 0);
    *slice = handle(device->gpu, index);
    return SUCCESS;
}

typedef struct {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique, state, health;
} nvmlGpuFabricInfoV_t;

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *info) {
    long state = lab_number(record(device), "fabric", -1);
    info->state = state < 0 ? 0 : (unsigned)state;
    return state < 0 ? NOT_SUPPORTED : SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(
    nvmlDevice_t device, unsigned *correctable, unsigned *uncorrectable, unsigned *pending, unsigned *failed) {
    *correctable = *uncorrectable = 0;
    *pending = lab_number(record(device), "remap_pending", 0);
    *failed = lab_number(record(device), "remap_failed", 0);
    return SUCCESS;
}
