"""Keeps cores awake: one process at the lowest priority spins on each."""
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

    def start(self):
        for core in sorted(os.sched_getaffinity(0)):
            command = [sys.executable, '-I', os.path.abspath(__file__), str(core), str(os.getpid())]
            self.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

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


def spin(core, parent):
    os.sched_setaffinity(0, {core})
    give_way()
    while os.getppid() == parent:
        for _ in range(1_000_000):
            pass


if __name__ == '__main__':
    spin(int(sys.argv[1]), int(sys.argv[2]))
