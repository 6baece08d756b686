/* A wall clock that is wrong by as much as a file says: for one process and its children, by LD_PRELOAD.

   CAMPAIGN_CLOCK names a file of three 64-bit numbers: nanoseconds to add, how often a wrong time was told, and the
   last time that was told. Only the wall clock lies; CLOCK_MONOTONIC and CLOCK_BOOTTIME go on as they are. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *told;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CAMPAIGN_CLOCK");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *place = mmap(NULL, 24, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (place != MAP_FAILED) told = place;
}

int clock_gettime(clockid_t which, struct timespec *at) {
    long failed = syscall(SYS_clock_gettime, which, at);
    if (failed || !told || !told[0] || (which != CLOCK_REALTIME && which != CLOCK_REALTIME_COARSE)) return (int)failed;
    int64_t wrong = at->tv_sec * 1000000000LL + at->tv_nsec + told[0];
    told[1]++;
    told[2] = wrong;
    at->tv_sec = wrong / 1000000000LL;
    at->tv_nsec = wrong % 1000000000LL;
    return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
