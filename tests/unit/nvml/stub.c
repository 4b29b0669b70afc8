/* A stand-in for NVIDIA's libnvidia-ml.so.1, so that the real Python bindings run on a machine without a GPU.
 *
 * It has two H100s; the first may be cut into slices (MIG), of which it then has one. What they tell stands in the file
 * that NVML_STUB names, one `key=value` a line, which is read again at each call: a test may change a machine while it
 * is measured. tests/unit/nvml/__init__.py says what keys there are.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* nvml.h, nvmlReturn_t. */
enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };

typedef unsigned long long u64;
typedef struct { u64 total, free, used; } Memory;
typedef struct { unsigned version; u64 total, reserved, free, used; } MemoryV2;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned pid; u64 memory; unsigned gpu_instance, compute_instance; } Process;

typedef struct { unsigned id, scope; long long when, latency; unsigned type, error; u64 value; } Field;

typedef struct { const char *uuid, *name; u64 memory; int slice; } Device;
static Device devices[] = {
    {"GPU-00000000-0000-0000-0000-000000000000", "NVIDIA H100 80GB HBM3", 80ULL << 30, 0},
    {"GPU-11111111-1111-1111-1111-111111111111", "NVIDIA H100 80GB HBM3", 80ULL << 30, 0},
    {"MIG-22222222-2222-2222-2222-222222222222", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", 10ULL << 30, 1},
};
enum { GPUS = 2, DEVICES = 3, SLICE = 2 };

/* The value of a key, or the fallback; good until the next call. */
static const char *told(const char *key, const char *fallback) {
    static char line[4096];
    const char *path = getenv("NVML_STUB");
    FILE *file = path ? fopen(path, "r") : NULL;
    size_t length = strlen(key);
    const char *found = fallback;
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, key, length) && line[length] == '=') {
            line[strcspn(line, "\n")] = 0;
            found = line + length + 1;
            break;
        }
    if (file) fclose(file);
    return found;
}

static double number(const char *key, double fallback) {
    const char *value = told(key, NULL);
    return value ? atof(value) : fallback;
}

/* What a key says of a device: of the second GPU, what stands under `key.1` if anything does. */
static const char *told_of(void *device, const char *key, const char *fallback) {
    char numbered[128];
    snprintf(numbered, sizeof numbered, "%s.1", key);
    const char *value = device == &devices[1] ? told(numbered, NULL) : NULL;
    return value ? value : told(key, fallback);
}

static double number_of(void *device, const char *key, double fallback) {
    const char *value = told_of(device, key, NULL);
    return value ? atof(value) : fallback;
}

/* What processes have on a device, in files `index-pid` of the folder that `contexts` names: a rehearsal's frameworks
 * write them, as nothing here computes. */
typedef struct { double memory, joules, worked; } Context;
typedef struct { double memory, joules, mine, worked; unsigned count, pids[64]; double each[64]; } Contexts;
static Contexts contexts(void *device) {
    Contexts found = {0};
    char folder[2048], path[4096];
    snprintf(folder, sizeof folder, "%s", told("contexts", ""));
    DIR *opened = *folder ? opendir(folder) : NULL;
    struct dirent *entry;
    while (opened && (entry = readdir(opened))) {
        unsigned index, pid;
        Context context;
        if (sscanf(entry->d_name, "%u-%u", &index, &pid) != 2 || index != (device == &devices[1])) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        if (fread(&context, sizeof context, 1, file) == 1) {
            found.joules += context.joules;
            if (context.worked > found.worked) found.worked = context.worked;
            if (pid == (unsigned)getpid()) found.mine = 1;
            /* A process that has ended, and that nobody has waited for, has given its memory back. */
            snprintf(path, sizeof path, "/proc/%u/fd/0", pid);
            if (found.count < 64 && !access(path, F_OK)) {
                found.memory += found.each[found.count] = context.memory;
                found.pids[found.count++] = pid;
            }
        }
        fclose(file);
    }
    if (opened) closedir(opened);
    return found;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + time.tv_nsec * 1e-9;
}

/* Each function fails with the error that the file gives under its name. */
#define MAY_FAIL() do { int error = (int)number(__func__, SUCCESS); if (error) return error; } while (0)
/* What the driver tells of a whole GPU alone. */
#define WHOLE(device) do { MAY_FAIL(); if ((device)->slice) return NOT_SUPPORTED; } while (0)
/* A function that tells one value of a whole GPU; the second kind is asked for a clock or a sensor. */
#define TELLS(function, type, value) \
    int function(Device *device, type *out) { WHOLE(device); *out = (type)(value); return SUCCESS; }
#define TELLS_OF(function, value) \
    int function(Device *device, int kind, unsigned *out) { WHOLE(device); *out = (unsigned)(value); return SUCCESS; }

int nvmlInitWithFlags(unsigned flags) { (void)flags; MAY_FAIL(); return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int error) {
    switch (error) {
    case SUCCESS: return "Success";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case 9: return "Driver Not Loaded";
    case 12: return "NVML Shared Library Not Found";
    case 15: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *text, unsigned length) {
    MAY_FAIL();
    snprintf(text, length, "%s", told("driver", "580.95.05"));
    return SUCCESS;
}
int nvmlSystemGetCudaDriverVersion_v2(int *version) { MAY_FAIL(); *version = (int)number("cuda", 13000); return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    MAY_FAIL();
    *count = (unsigned)number("gpus", GPUS);
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    MAY_FAIL();
    if (index >= number("gpus", GPUS)) return INVALID_ARGUMENT;
    *device = &devices[index];
    return SUCCESS;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, Device **device) {
    MAY_FAIL();
    for (int index = 0; index < DEVICES; index++)
        if (!strcmp(uuid, devices[index].uuid)) { *device = &devices[index]; return SUCCESS; }
    return NOT_FOUND;
}
int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    MAY_FAIL();
    if (device->slice) return INVALID_ARGUMENT;
    *current = *pending = device == &devices[0] && told("slices", NULL);
    return SUCCESS;
}
int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **slice) {
    MAY_FAIL();
    if (device != &devices[0] || !number("slices", 0) || index != number("slice_index", 0)) return NOT_FOUND;
    *slice = &devices[SLICE];
    return SUCCESS;
}
int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) { MAY_FAIL(); *count = 7; return SUCCESS; }
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device *slice, Device **device) {
    MAY_FAIL();
    if (!slice->slice) return INVALID_ARGUMENT;
    *device = &devices[0];
    return SUCCESS;
}

int nvmlDeviceGetUUID(Device *device, char *text, unsigned length) {
    MAY_FAIL();
    snprintf(text, length, "%s", device->uuid);
    return SUCCESS;
}
int nvmlDeviceGetName(Device *device, char *text, unsigned length) {
    MAY_FAIL();
    snprintf(text, length, "%s", device->slice ? device->name : told_of(device, "name", device->name));
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory) {
    MAY_FAIL();
    memory->total = device->slice ? device->memory : (u64)number_of(device, "memory", (double)device->memory);
    /* What the driver keeps for itself included. */
    memory->used = (600ULL << 20) + (u64)(number_of(device, "used_memory", 0) + contexts(device).memory);
    memory->free = memory->total - memory->used;
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo_v2(Device *device, MemoryV2 *memory) {
    MAY_FAIL();
    memory->total = device->slice ? device->memory : (u64)number_of(device, "memory", (double)device->memory);
    memory->reserved = 600ULL << 20;
    memory->used = (u64)(number_of(device, "used_memory", 0) + contexts(device).memory);
    memory->free = memory->total - memory->reserved - memory->used;
    return SUCCESS;
}
#define DEFAULT_LIMIT number_of(device, "default_power_limit", 700)
TELLS(nvmlDeviceGetEnforcedPowerLimit, unsigned, number_of(device, "power_limit", DEFAULT_LIMIT) * 1000)
TELLS(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, DEFAULT_LIMIT * 1000)
TELLS(nvmlDeviceGetPersistenceMode, unsigned, number("persistent", 1))
TELLS(nvmlDeviceGetComputeMode, int, number("compute_mode", 0))
TELLS(nvmlDeviceGetNumGpuCores, unsigned, number_of(device, "cores", 16896))
TELLS(nvmlDeviceGetCurrentClocksEventReasons, u64, strtoull(told("clock_event_reasons", "1"), NULL, 0)) /* idle */
TELLS_OF(nvmlDeviceGetClockInfo, number("clock", 1980))
TELLS_OF(nvmlDeviceGetMaxClockInfo, 1980)
TELLS_OF(nvmlDeviceGetTemperature, number("temperature", 34))
int nvmlDeviceGetFieldValues(Device *device, int count, Field *fields) {
    WHOLE(device);
    for (int index = 0; index < count; index++) {
        char key[32];
        snprintf(key, sizeof key, "held_%u", fields[index].id);
        double seconds = number(key, -1);
        fields[index].type = 3; /* unsigned long long */
        fields[index].error = seconds < 0 ? NOT_SUPPORTED : SUCCESS;
        fields[index].value = seconds < 0 ? 0 : (u64)(seconds * 1e9);
    }
    return SUCCESS;
}
/* The CPUs near a GPU, a bit each. */
int nvmlDeviceGetCpuAffinity(Device *device, unsigned words, unsigned long *bits) {
    MAY_FAIL();
    const char *near = told_of(device, "near", NULL);
    if (!near) return NOT_SUPPORTED;
    for (unsigned word = 0; word < words; word++) bits[word] = word ? 0 : strtoull(near, NULL, 0);
    return SUCCESS;
}
int nvmlDeviceGetUtilizationRates(Device *device, Utilization *percent) {
    WHOLE(device);
    /* A share of the last half second. */
    double worked = contexts(device).worked;
    percent->gpu = worked && now() - worked < 0.5 ? 100 : (unsigned)number_of(device, "utilisation", 0);
    percent->memory = 0;
    return SUCCESS;
}
int nvmlDeviceGetEccMode(Device *device, unsigned *current, unsigned *pending) {
    WHOLE(device);
    *current = *pending = (unsigned)number("ecc", 1);
    return SUCCESS;
}

/* A running total that moves in steps, as the real one does, of a GPU that draws `power` since the machine started. */
int nvmlDeviceGetTotalEnergyConsumption(Device *device, u64 *millijoules) {
    WHOLE(device);
    double step = number("energy_step", 0.1), wrap = number("energy_wrap", 0), power = number("power", 100);
    Contexts drawn = contexts(device);
    /* A process with a context has a clock of its own, by which it says what was drawn. */
    u64 steps = (u64)((drawn.mine ? drawn.joules / power : now()) / step);
    u64 joules = (u64)(power * step * (double)steps);
    *millijoules = 1000 * (wrap ? joules % (u64)wrap : joules);
    return SUCCESS;
}

/* pid:bytes, separated by spaces. `own` is whoever asks, and `na` a memory that the driver does not know. */
static int running(Device *device, const char *key, unsigned *count, Process *processes) {
    char list[1024], *next = list, *entry;
    unsigned room = processes ? *count : 0, found = 0;
    snprintf(list, sizeof list, "%s", told_of(device, key, ""));
    while ((entry = strsep(&next, " "))) {
        char *memory = strchr(entry, ':');
        if (!memory) continue;
        if (found < room) {
            processes[found].pid = strncmp(entry, "own:", 4) ? (unsigned)atol(entry) : (unsigned)getpid();
            processes[found].memory = strcmp(memory, ":na") ? strtoull(memory + 1, NULL, 10) : ~0ULL;
            processes[found].gpu_instance = processes[found].compute_instance = ~0u;
        }
        found++;
    }
    Contexts computing = contexts(device);
    unsigned foreign = (unsigned)number("foreign", 0);
    for (unsigned index = 0; !strcmp(key, "processes") && index < computing.count; index++, found++)
        if (found < room) {
            processes[found].pid = computing.pids[index] + foreign;
            processes[found].memory = (u64)computing.each[index];
            processes[found].gpu_instance = processes[found].compute_instance = ~0u;
        }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}
int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count, Process *processes) {
    MAY_FAIL();
    return running(device, "processes", count, processes);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(Device *device, unsigned *count, Process *processes) {
    MAY_FAIL();
    return running(device, "graphics", count, processes);
}
