"""Facts of this machine, and its load by other processes."""
import glob
import os
import platform
import subprocess
import time

TICK = os.sysconf('SC_CLK_TCK')


def process_cpu(pid):
    with open(f'/proc/{pid}/stat') as stat:
        fields = stat.read().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def switches(pid):
    """How often the threads that a process has now were switched out, by waiting or by force."""
    count = 0
    for path in glob.glob(f'/proc/{pid}/task/*/status'):
        try:
            with open(path) as status:
                count += sum(int(line.split()[1]) for line in status if 'ctxt_switches' in line)
        except OSError:
            pass  # the thread has ended
    return count


def busy():
    """CPU seconds used by all processes and the kernel, and those stolen by the host, since boot."""
    with open('/proc/stat') as stat:
        user, nice, system, _, _, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    return (user + nice + system + irq + softirq) / TICK, steal / TICK


class Usage:
    """CPU between two moments: of the drivers, of the servers, and of all other processes, in cores. `spinners` belong to the harness.
    `switches`: thread switches of the drivers."""

    def __init__(self, drivers, servers, spinners=()):
        self.pids, self.servers, self.own = drivers, servers, [os.getpid(), *spinners]
        self.before = self._read()

    def _read(self):
        all_used, stolen = busy()
        return (time.monotonic(), all_used, stolen, sum(map(process_cpu, self.own)), sum(map(process_cpu, self.pids)),
                sum(map(process_cpu, self.servers)), sum(map(switches, self.pids)))

    def end(self):
        wall, used, stolen, ours, self.drivers, self.redis, self.switches = (b - a for a, b in zip(self.before, self._read()))
        self.wall = wall
        self.foreign = max(0.0, used - ours - self.drivers - self.redis) / wall + stolen / wall


def wait_until_quiet(limit, patience, say):
    """Waits, at most `patience` seconds, for a second in which less than `limit` cores are busy."""
    give_up, told = time.monotonic() + patience, False
    while True:
        start, before = time.monotonic(), busy()[0]
        time.sleep(1)
        used = (busy()[0] - before) / (time.monotonic() - start)
        if used < limit or time.monotonic() > give_up:
            return
        if not told:
            say(f'waiting, at most {patience:.0f} s, for a quiet machine: {used:.2f} cores are busy')
            told = True


def says(*command, cwd=None):
    try:
        return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ''


def facts(root, server):
    """The facts that a reader of the figures needs. `server`: the program of the servers."""
    model = ''
    with open('/proc/cpuinfo') as info:
        for line in info:
            if line.startswith('model name'):
                model = line.split(':', 1)[1].strip()
                break
    with open('/proc/meminfo') as info:
        memory = int(info.readline().split()[1]) // 1024 // 1024
    version = says(server, '--version').split()  # Redis server v=7.0.15 ...
    return {'cpu': model or platform.machine(), 'cores': len(os.sched_getaffinity(0)), 'memory_gib': memory,
            'kernel': platform.release(), 'server': version[0] if version else '', 'redis': next((w[2:] for w in version if w.startswith('v=')), ''),
            'rustc': says('rustc', '--version'), 'python': platform.python_version(), 'node': says('node', '--version'),
            'commit': says('git', 'rev-parse', '--short=12', 'HEAD', cwd=root),
            'date': time.strftime('%Y-%m-%d', time.gmtime())}
