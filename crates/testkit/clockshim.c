/*
 * The clock of a redis-server under test: an LD_PRELOAD library that answers
 * every question about wall-clock time by the number in a file that changes
 * while the server runs: with the number itself, or with the host's time plus
 * the number. Monotonic clocks stay real, or the server's event loop would stop.
 *
 * It must never allocate, lock, or look up a symbol: jemalloc asks for the time
 * while it is starting, and a shim that allocates (libfaketime does) deadlocks
 * there. Hence raw system calls only.
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

/* Two copies of the microseconds; the writer stores the first, then the second. */
static volatile uint64_t *clock_page;
/* They are added to the host's time. */
static int are_added;

__attribute__((constructor)) static void map_clock(void) {
    const char *path = getenv("LEASEHOLD_CLOCK_FILE");
    if (!path) {
        path = getenv("LEASEHOLD_CLOCK_OFFSET");
        are_added = 1;
    }
    if (!path) return;
    long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    /* A server on the real clock would make tests pass or fail by luck. */
    if (fd < 0) _exit(97);
    void *page = mmap(NULL, 16, PROT_READ, MAP_SHARED, (int)fd, 0);
    if (page == MAP_FAILED) _exit(98);
    syscall(SYS_close, fd);
    __atomic_store_n(&clock_page, (volatile uint64_t *)page, __ATOMIC_RELEASE);
}

/* The microseconds in the file; 0 when there is none (yet). */
static int written_micros(uint64_t *micros) {
    volatile uint64_t *page = __atomic_load_n(&clock_page, __ATOMIC_ACQUIRE);
    if (!page) return 0;
    /* write(2) does not promise that 8 bytes appear at once: equal copies do. Bounded, as the
       writer may have been killed between them. */
    for (int tries = 0; tries < 10000000; tries++) {
        uint64_t second = __atomic_load_n(&page[1], __ATOMIC_ACQUIRE);
        *micros = __atomic_load_n(&page[0], __ATOMIC_ACQUIRE);
        if (*micros == second) break;
    }
    return 1;
}

int clock_gettime(clockid_t id, struct timespec *ts) {
    uint64_t micros;
    int is_led = (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) && written_micros(&micros);
    if (is_led && !are_added) {
        ts->tv_sec = (time_t)(micros / 1000000);
        ts->tv_nsec = (long)(micros % 1000000) * 1000;
        return 0;
    }
    int failed = (int)syscall(SYS_clock_gettime, id, ts);
    if (failed || !is_led) return failed;
    int64_t ns = (int64_t)ts->tv_sec * 1000000000 + ts->tv_nsec + (int64_t)micros * 1000;
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
