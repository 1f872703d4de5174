// A stand-in for libnvidia-ml.so: two unlike GPUs, of which the first one throttles, a lost one, and one that hangs for
// a minute. It has few of the functions, as an old driver. Built with -DHANGS it hangs as it is initialised, with
// -DCRASHES it ends the process.

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, GPU_IS_LOST = 15 };
enum { H200, A30, LOST, HANGS_FOR_A_MINUTE, COUNT };
enum { CLOCK_SM = 1, CLOCK_MEM = 2 };

typedef int result;
typedef struct gpu {
	int number;
} *device;

static struct gpu gpus[COUNT] = {{H200}, {A30}, {LOST}, {HANGS_FOR_A_MINUTE}};

static result gone(device d) { return d->number == LOST ? GPU_IS_LOST : SUCCESS; }

result nvmlInit_v2(void) {
#ifdef HANGS
	sleep(60);
#endif
#ifdef CRASHES
	abort();
#endif
	return SUCCESS;
}

result nvmlDeviceGetCount_v2(unsigned *count) {
	*count = COUNT;
	return SUCCESS;
}

result nvmlDeviceGetHandleByIndex_v2(unsigned index, device *d) {
	if (index >= COUNT)
		return INVALID_ARGUMENT;
	*d = &gpus[index];
	return SUCCESS;
}

result nvmlDeviceGetName(device d, char *name, unsigned length) {
	if (d->number == HANGS_FOR_A_MINUTE)
		sleep(60);
	strncpy(name, d->number == H200 ? "NVIDIA H200" : "NVIDIA A30", length);
	return gone(d);
}

result nvmlDeviceGetUUID(device d, char *uuid, unsigned length) {
	strncpy(uuid, d->number == H200 ? "GPU-h200" : "GPU-a30", length);
	return gone(d);
}

struct memory {
	unsigned long long total, free, used;
};

result nvmlDeviceGetMemoryInfo(device d, struct memory *memory) {
	memory->total = (d->number == H200 ? 141ULL : 24ULL) << 30;
	memory->used = 1ULL << 30;
	memory->free = memory->total - memory->used;
	return gone(d);
}

result nvmlDeviceGetMaxClockInfo(device d, int clock, unsigned *mhz) {
	*mhz = clock == CLOCK_SM ? (d->number == H200 ? 1980 : 1440) : 3201;
	return gone(d);
}

result nvmlDeviceGetClockInfo(device d, int clock, unsigned *mhz) {
	*mhz = d->number == H200 ? 1410 : 1440;
	return gone(d);
}

result nvmlDeviceGetCurrentClocksThrottleReasons(device d, unsigned long long *reasons) {
	*reasons = d->number == H200 ? 4 : 1;
	return gone(d);
}

result nvmlDeviceGetPowerUsage(device d, unsigned *milliwatts) {
	*milliwatts = 699500;
	return d->number == H200 ? SUCCESS : NOT_SUPPORTED;
}
