/*
 * The wall clock of a storm's servers: an LD_PRELOAD library that adds to the
 * host's clock a number of nanoseconds, which stands in a file and changes while
 * the server runs. Clocks that count from boot are left alone.
 *
 * It must never allocate, lock, or look up a symbol: an allocator that asks for
 * the time while it starts would wait for itself. Hence raw system calls only.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Two copies of the offset; the writer stores the first, then the second. */
static volatile int64_t *offset_page;

__attribute__((constructor)) static void map_offset(void) {
    const char *path = getenv("LEASEHOLD_STORM_CLOCK");
    if (!path) return;
    long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    void *page = mmap(NULL, 16, PROT_READ, MAP_SHARED, (int)fd, 0);
    syscall(SYS_close, fd);
    if (page == MAP_FAILED) return;
    __atomic_store_n(&offset_page, (volatile int64_t *)page, __ATOMIC_RELEASE);
}

static int64_t offset(void) {
    volatile int64_t *page = __atomic_load_n(&offset_page, __ATOMIC_ACQUIRE);
    if (!page) return 0;
    int64_t first = 0;
    /* write(2) does not promise that 8 bytes appear at once: equal copies do. Bounded, as the
       writer may have been killed between them. */
    for (int tries = 0; tries < 10000000; tries++) {
        int64_t second = __atomic_load_n(&page[1], __ATOMIC_ACQUIRE);
        first = __atomic_load_n(&page[0], __ATOMIC_ACQUIRE);
        if (first == second) break;
    }
    return first;
}

int clock_gettime(clockid_t id, struct timespec *ts) {
    int failed = (int)syscall(SYS_clock_gettime, id, ts);
    if (failed || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) return failed;
    int64_t ns = (int64_t)ts->tv_sec * 1000000000 + ts->tv_nsec + offset();
    ts->tv_sec = (time_t)(ns / 1000000000);
    ts->tv_nsec = (long)(ns % 1000000000);
    return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
    (void)zone;
    struct timespec ts;
    if (clock_gettime(CLOCK_REALTIME, &ts) != 0) return -1;
    tv->tv_sec = ts.tv_sec;
    tv->tv_usec = ts.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec ts;
    if (clock_gettime(CLOCK_REALTIME, &ts) != 0) return (time_t)-1;
    if (out) *out = ts.tv_sec;
    return ts.tv_sec;
}
