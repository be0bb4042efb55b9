"""Cores that never sleep: a process on each that spins, and gives way to whoever else wants the core."""
import os
import subprocess
import sys


class Spinners:
    """Those of one run. `end` ends them; they also end by themselves once the process that started them is gone."""

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
    """Everybody else goes first."""
    os.nice(19)
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except OSError:
        pass  # not every container may


def spin(core, parent):
    os.sched_setaffinity(0, {core})
    give_way()
    while os.getppid() == parent:
        for _ in range(1_000_000):
            pass


if __name__ == '__main__':
    spin(int(sys.argv[1]), int(sys.argv[2]))
