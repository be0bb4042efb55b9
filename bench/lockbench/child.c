/* The command under the wrappers. It logs the times at which it runs (CLOCK_MONOTONIC, ns).
 *
 *   child clock              once, on stdout
 *   child beat FILE SECONDS  every 2 ms into FILE, until FILE.stop exists or the time is over
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static long long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void tell(int fd, long long at)
{
    char line[32];
    int length = snprintf(line, sizeof line, "%lld\n", at);
    if (write(fd, line, length) != length)
        _exit(1);
}

int main(int count, char **words)
{
    long long begun = now();
    if (count == 2 && !strcmp(words[1], "clock")) {
        tell(STDOUT_FILENO, begun);
        return 0;
    }
    if (count != 4 || strcmp(words[1], "beat"))
        return 2;
    char stop[4096];
    snprintf(stop, sizeof stop, "%s.stop", words[2]);
    int file = open(words[2], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0)
        return 1;
    long long end = begun + atoll(words[3]) * 1000000000LL;
    for (long long at = begun; at < end && access(stop, F_OK); at = now()) {
        tell(file, at);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    return 0;
}
