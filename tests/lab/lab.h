/* The simulated machine of the fake NVIDIA libraries.
 *
 * The file in LAB_GPUS describes it, with one record per line:
 *
 *     driver=580.95.05                                  a fact of the machine
 *     gpu<TAB>name=NVIDIA H200<TAB>cc=9.0               a GPU, in PCI order
 *     slice<TAB>uuid=MIG-...<TAB>profile=1g.18gb        a MIG slice of the previous GPU
 *
 * lab_number(lab_gpu(0), "nvml_error", 0) reads a key of a record. lab_machine() is the machine's record.
 */
#ifndef LAB_H
#define LAB_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define LAB_RECORDS 256
#define LAB_TEXT 1024
#define LAB_FACTS 8192

typedef const char *lab_record; /* key=value, separated by tabs; NULL if there is no such record */

static char lab_facts[LAB_FACTS];               /* of the machine */
static char lab_devices[LAB_RECORDS][LAB_TEXT]; /* GPUs and slices, in file order */
static int lab_count = -1;

static int lab_is(const char *line, const char *kind) {
    size_t length = strlen(kind);
    return strncmp(line, kind, length) == 0 && line[length] == '\t';
}

static void lab_load(void) {
    char line[LAB_TEXT];
    const char *path = getenv("LAB_GPUS");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (lab_count >= 0) return;
    lab_count = 0;
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\r\n")] = 0;
        if ((lab_is(line, "gpu") || lab_is(line, "slice")) && lab_count < LAB_RECORDS)
            strcpy(lab_devices[lab_count++], line);
        else if (strchr(line, '=') && strlen(lab_facts) + strlen(line) + 2 < sizeof lab_facts)
            strcat(strcat(lab_facts, "\t"), line);
    }
    fclose(file);
}

static lab_record lab_machine(void) {
    lab_load();
    return lab_facts;
}

static int lab_gpus(void) {
    int total = 0;
    lab_load();
    for (int i = 0; i < lab_count; i++) total += lab_is(lab_devices[i], "gpu");
    return total;
}

static int lab_position(int gpu) {
    lab_load();
    for (int i = 0; i < lab_count; i++)
        if (lab_is(lab_devices[i], "gpu") && gpu-- == 0) return i;
    return -1;
}

static lab_record lab_gpu(int gpu) {
    int position = lab_position(gpu);
    return position < 0 ? NULL : lab_devices[position];
}

static int lab_slices(int gpu) {
    int position = lab_position(gpu), total = 0;
    if (position < 0) return 0;
    while (position + 1 + total < lab_count && lab_is(lab_devices[position + 1 + total], "slice")) total++;
    return total;
}

static lab_record lab_slice(int gpu, int slice) {
    return slice < 0 || slice >= lab_slices(gpu) ? NULL : lab_devices[lab_position(gpu) + 1 + slice];
}

/* Copy the value of a key to `out`; return 0 if it is missing. The last of repeated keys counts. */
static int lab_read(lab_record record, const char *key, char *out, size_t size) {
    size_t length = strlen(key);
    int found = 0;
    for (const char *field = record; field; field = strchr(field, '\t')) {
        if (*field == '\t') field++;
        if (strncmp(field, key, length) || field[length] != '=') continue;
        snprintf(out, size, "%.*s", (int)strcspn(field + length + 1, "\t"), field + length + 1);
        found = 1;
    }
    return found;
}

static long lab_number(lab_record record, const char *key, long otherwise) {
    char text[LAB_TEXT];
    return lab_read(record, key, text, sizeof text) ? strtol(text, NULL, 0) : otherwise;
}

/* Copy the text of a key, truncated to `size` and terminated. */
static void lab_text(lab_record record, const char *key, const char *otherwise, char *out, size_t size) {
    if (!lab_read(record, key, out, size)) snprintf(out, size, "%s", otherwise);
}

/* Parse cc=8.9 into two numbers. */
static void lab_capability(lab_record record, int *major, int *minor) {
    char text[LAB_TEXT];
    lab_text(record, "cc", "0.0", text, sizeof text);
    *major = *minor = 0;
    sscanf(text, "%d.%d", major, minor);
}

/* Without persistence, a driver starts its GPUs one after another for the first process and stops them after the last.
 * A process that starts while another one runs waits only for their start. */
static void lab_start(void) {
    char path[4096];
    long each = lab_number(lab_machine(), "start_ms", 0);
    if (!each) return;
    snprintf(path, sizeof path, "%s.started", getenv("LAB_GPUS"));
    int file = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (flock(file, LOCK_EX | LOCK_NB) == 0) usleep((useconds_t)(1000 * each * lab_gpus()));
    flock(file, LOCK_SH);
}

#endif
