"""One measured run: starts the drivers together, and reads CPU and command counts around the window.

The protocol
------------

A driver is called as `driver key=value ...`:

| key | meaning |
| --- | --- |
| `port`, `prefix` | redis-server on 127.0.0.1, and what the keys begin with |
| `ports` | several servers, as `1,2,3`, in place of `port`: a quorum |
| `url` | Rust only: the URL of the server, in place of the one that `port` gives |
| `mode` | `loop`; `idle`: take the one key for 120 s and let the workers wait for it; `wait`: only the workers, another process holds it |
| `workers`, `keys` | concurrent workers in this process, on `distinct` keys (`prefix:<worker>`) or `one` (`prefix:one`) |
| `threads` | Rust only: 1 for tokio's current_thread runtime, more for multi_thread |
| `secs`, `cs_ms`, `think_ms` | length, time inside the critical section, mean pause (0.5 to 1.5 times) after a release |
| `ttl_ms`, `settle_ms` | the lease (10000); how long waiters have to join the line (3000) |
| `log` | a file for one line `requested acquired release_called release_returned worker` per acquisition, in CLOCK_MONOTONIC ns |

A driver warms up (20 acquisitions per worker on private keys), prints `READY`, reads `GO <t0>` (CLOCK_MONOTONIC ns), and works from t0 to t0 + `secs`. It finishes its open cycles, prints one line of JSON (`ops`, `pair_p50_us`,
`pair_p99_us`, `acq_p50_us`, `acq_p99_us`, `acq_mean_us`, `acq_max_us`, `changes`, `violations`, `errors`, `min_worker`, `max_worker`), reads `BYE` and exits. It counts a failed acquisition as an error and repeats it; its wait
runs from the first request. `pair` is the time in acquire and release, `acq` that in acquire. `changes` counts acquisitions with another owner than the one before, `violations` two workers inside at once.
"""
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

from . import servers
from .spinners import Spinners
from .machine import Usage, wait_until_quiet
from .redis import Monitor, NotStarted, Server

NS = 1_000_000_000


class Failed(Exception):
    """A driver that died, hung, or broke the protocol."""


class Driver:
    def __init__(self, command, env, errors):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                                        env={**os.environ, **env})
        self.name = os.path.basename(command[0])
        self.rest = b''
        self.ready = False

    @property
    def pid(self):
        return self.process.pid

    def line(self, limit):
        deadline = time.monotonic() + limit
        while b'\n' not in self.rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise Failed(f'{self.name} said nothing for {limit} s')
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                raise Failed(f'{self.name} ended with status {self.process.wait()}')
            self.rest += more
        line, self.rest = self.rest.split(b'\n', 1)
        return line.decode()

    def wait_ready(self):
        if not self.ready:
            if (line := self.line(90)) != 'READY':
                raise Failed(f'{self.name} said {line!r} instead of READY')
            self.ready = True

    def say(self, text):
        try:
            self.process.stdin.write(text.encode() + b'\n')
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failed(f'{self.name} ended with status {self.process.wait()}') from None

    def end(self, patience=0):
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def instructions(profile):
    """The sum of a profile of callgrind."""
    with open(profile) as lines:
        for line in lines:
            if line.startswith('totals:'):
                return int(line.split()[1])
    raise Failed('callgrind wrote no sum')


class Run:
    """The result of one run. The Runner fills in `sent`. `instructions`: of a driver's whole life, if they are counted."""

    def __init__(self, results, logs, start, end, usage, calls, connections, monitor):
        self.results, self.logs, self.start, self.end = results, logs, start, end
        self.usage, self.calls, self.connections, self.monitor = usage, calls, connections, monitor
        self.sent = self.instructions = None

    @property
    def foreign(self):
        return self.usage.foreign

    def total(self, what):
        return sum(result[what] for result in self.results)


class Runner:
    """`foreign_max`: cores that other processes may use in a run. `tries`: the most attempts for a disturbed run. `program`: the server."""

    def __init__(self, say, foreign_max=0.15, tries=3, patience=120, program='redis-server'):
        self.say, self.foreign_max, self.tries, self.patience, self.program = say, foreign_max, tries, patience, program
        self.server = Server(program)
        self.condition = None
        self.folder = tempfile.mkdtemp(prefix='leasehold-bench-')
        self.runs = 0
        self.shares = {}  # peer -> workload -> command -> share of its calls that the client sent

    def close(self):
        self.server.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextlib.contextmanager
    def under(self, condition):
        """A context for runs with a special server (`tls`, `disk`, `quorum`, `silent`, `node`, `cluster`), awake cores (`awake`), one core less (`busy`) or
        counted instructions (`counted`); None: the usual conditions."""
        usual, own = self.server, servers.BY_CONDITION.get(condition)
        if condition == 'counted' and not shutil.which('valgrind'):
            raise NotStarted('valgrind is not installed (Debian: apt-get install valgrind)')
        try:
            if own:
                self.server = own(self.program)
            self.condition = condition
            yield
        finally:
            if self.server is not usual:
                self.server.close()
            self.server, self.condition = usual, None

    def wait_until_quiet(self):
        """Waits for a quiet machine, unless disturbed runs are not repeated anyway."""
        if self.tries > 1:
            wait_until_quiet(self.foreign_max, self.patience, self.say)

    def measure(self, peer, spec, workload, each, secs, logs=False, watch=False):
        """The least disturbed of at most `tries` runs, or None if all failed. `each`: arguments of every process.
        `watch`: count the commands sent by MONITOR in the run itself, for runs with few of them."""
        if not watch:
            self._learn(peer, spec, workload, each)
        best = self.least_disturbed(lambda: self.attempt(peer, spec, workload, each, secs, logs, watch), lambda run: run.foreign)
        if best:
            best.sent = self._sent(peer, workload, best)
        return best

    def least_disturbed(self, attempt, foreign):
        """The best of at most `tries` attempts, by the cores that other processes used; None if all failed."""
        best = None
        for _ in range(self.tries):
            self.wait_until_quiet()
            run = attempt()
            if run and (best is None or foreign(run) < foreign(best)):
                best = run
            if best and foreign(best) < self.foreign_max:
                break
        return best

    def attempt(self, peer, spec, workload, each, secs, logs=False, watch=False):
        """One run, disturbed or not; None if it failed."""
        try:
            return self.once(spec, each, secs, logs, watch)
        except (Failed, OSError, ValueError) as error:
            self.say(f'FAILED {peer} {workload}: {error}\n{self.said()}')
            return None

    def said(self):
        """The stderr of the drivers of the last run."""
        with open(os.path.join(self.folder, 'stderr'), errors='replace') as errors:
            return errors.read().strip()[-1000:]

    def once(self, spec, each, secs, logs=False, watch=False):
        """One run, disturbed or not. Only one driver at a time can be counted."""
        self.runs += 1
        redis = self.server.command
        profile = os.path.join(self.folder, f'callgrind.{self.runs}') if self.condition == 'counted' else None
        # Threads take turns: a thread that keeps running makes other batches.
        counter = ['valgrind', '--quiet', '--fair-sched=try', '--tool=callgrind', f'--callgrind-out-file={profile}'] if profile else []
        self.server.empty()
        redis('CONFIG', 'SET', 'notify-keyspace-events', spec.get('notify', ''))
        drivers, paths, monitor, spinners = [], [], None, Spinners()
        with open(os.path.join(self.folder, 'stderr'), 'w') as errors:
            try:
                if self.condition == 'awake':
                    spinners.keep_awake()
                if self.condition == 'busy':
                    spinners.take_a_core()
                for number, args in enumerate(each):
                    command = [*counter, *spec['command'], *self.server.arguments(), f'prefix=b{self.runs}', f'secs={secs}', *args]
                    if logs:
                        paths.append(os.path.join(self.folder, f'log.{number}'))
                        command.append('log=' + paths[-1])
                    drivers.append(Driver(command, {**spec.get('env', {}), **self.server.env}, errors))
                    if number == 0 and 'mode=idle' in args:
                        drivers[0].wait_ready()  # it holds the lock before others ask for it
                for driver in drivers:
                    driver.wait_ready()
                self.server.begin()
                start = time.monotonic_ns() + 60_000_000 + 1_000_000 * len(drivers)
                end = start + int(secs * NS)
                for driver in drivers:
                    driver.say(f'GO {start}')
                time.sleep(max(0, start - time.monotonic_ns()) / NS)
                before = redis.calls()
                if watch:
                    monitor = Monitor(self.server.port)
                usage = Usage([driver.pid for driver in drivers], self.server.pids, spinners.pids)
                time.sleep(max(0, end - time.monotonic_ns()) / NS)
                usage.end()
                if watch:
                    monitor.close()
                after = redis.calls()
                connections = int(redis.info('clients')['connected_clients']) - 1
                results = [json.loads(driver.line(60)) for driver in drivers]
                self.server.end()
                for driver in drivers:
                    driver.say('BYE')
                for driver in drivers:
                    driver.end(patience=10)
            finally:
                spinners.end()
                self.server.end()
                for driver in drivers:
                    driver.end()
                if monitor and monitor.thread.is_alive():
                    monitor.close()
        calls = {name: count - before.get(name, 0) for name, count in after.items() if count != before.get(name, 0)}
        for ours in ('info', 'monitor'):
            calls.pop(ours, None)
        run = Run(results, paths, start, end, usage, calls, connections, monitor)
        if profile:
            run.instructions = instructions(profile)
        return run

    def _learn(self, peer, spec, workload, each):
        """A short run under MONITOR, once for each peer and workload, that separates commands of the client from those of its
        scripts. Its times are not used."""
        known = self.shares.setdefault(peer, {})
        if workload in known:
            return
        known[workload] = {}
        run = self.attempt(peer, spec, workload, each, 0.5, watch=True)
        if run:
            sent, inner = run.monitor.sent, run.monitor.inner
            known[workload] = {name: sent.get(name, 0) / (sent.get(name, 0) + inner.get(name, 0)) for name in {*sent, *inner}}

    def _sent(self, peer, workload, run):
        if run.monitor:
            ours = ('info', 'monitor')
            return sum(count for name, count in run.monitor.sent.items() if name not in ours)
        shares = {}
        for other in self.shares[peer].values():
            shares.update(other)
        shares.update(self.shares[peer][workload])
        # A command that MONITOR never showed counts as sent.
        return sum(count * shares.get(name.split('|')[0], 1) for name, count in run.calls.items())
