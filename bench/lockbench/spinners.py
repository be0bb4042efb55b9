"""Processes that spin: one at the lowest priority on each core, so that no core sleeps, or one that takes a core."""
import os
import subprocess
import sys


class Spinners:
    """The spinning processes of one run. `end` ends them; they also end when their parent process ends."""

    def __init__(self):
        self.processes = []

    @property
    def pids(self):
        return [process.pid for process in self.processes]

    def keep_awake(self):
        for core in sorted(os.sched_getaffinity(0)):
            self._start(core, 'gives-way')

    def take_a_core(self):
        self._start(max(os.sched_getaffinity(0)), 'takes')

    def _start(self, core, how):
        command = [sys.executable, '-I', os.path.abspath(__file__), str(core), str(os.getpid()), how]
        # A session has a share of its own (autogroups), as another program has. A nice value counts only inside of a session.
        self.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                               start_new_session=how == 'takes'))

    def end(self):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
        self.processes = []


def give_way():
    """Sets the lowest priority for this process."""
    os.nice(19)
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except OSError:
        pass  # some containers forbid it


def spin(core, parent, how):
    os.sched_setaffinity(0, {core})
    if how == 'gives-way':
        give_way()
    while os.getppid() == parent:
        for _ in range(1_000_000):
            pass


if __name__ == '__main__':
    spin(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
