"""Processes that share a cache on one redis-server, and a source that counts its reads outside of Redis. See rust/src/bin/stampede."""
import json
import os
import shutil
import struct
import tempfile
import time

from .redis import Monitor, Server
from .runner import Driver

PROCESSES = 4
AHEAD = 40_000_000  # ns between the order and the start


class Fleet:
    """Four processes that read, and a fifth that invalidates."""

    def __init__(self, program, policy, lease_ms):
        self.lease_ms, self.keys, self.drivers = lease_ms, 0, []
        self.folder = tempfile.mkdtemp(prefix='leasehold-bench-')
        self.errors = open(os.path.join(self.folder, 'stderr'), 'w')
        self.server = None
        try:
            self.set_floor(0)
            self.server = Server()
            for _ in range(PROCESSES + 1):
                command = [program, f'policy={policy}', f'port={self.server.port}', f'folder={self.folder}', f'lease_ms={lease_ms}']
                self.drivers.append(Driver(command, {}, self.errors))
            for driver in self.drivers:
                driver.wait_ready()
        except BaseException:
            self.close()
            raise
        self.readers, self.writer = self.drivers[:PROCESSES], self.drivers[PROCESSES]

    def close(self):
        for driver in self.drivers:
            driver.end()
        if self.server:
            self.server.close()
        self.errors.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def said(self):
        with open(os.path.join(self.folder, 'stderr'), errors='replace') as errors:
            return errors.read().strip()[-500:]

    def key(self):
        """A key that was never used."""
        self.keys += 1
        return f'page-{self.keys}'

    def tell(self, drivers, key, **settings):
        """Starts traffic with `rate` requests a second in total. Returns the start time."""
        start = time.monotonic_ns() + AHEAD
        settings.setdefault('lease_ms', self.lease_ms)
        settings['rate'] = settings.get('rate', 0) / len(drivers)
        words = ' '.join(f'{name}={value}' for name, value in settings.items())
        for driver in drivers:
            driver.say(f'offer key={key} t0={start} {words}')
        return start

    def told(self, drivers, limit=90):
        return Answers([json.loads(driver.line(limit)) for driver in drivers])

    def offer(self, key, **settings):
        self.tell(self.readers, key, **settings)
        return self.told(self.readers)

    def prime(self, key, **settings):
        """Lets one process load and store the entry at once."""
        self.tell(self.readers[:1], key, callers=1, takes_ms=1, **settings)
        self.told(self.readers[:1])
        time.sleep(0.05)  # the loader may have the value before the server

    def invalidate(self, key):
        """Invalidates the entry: all values read before are outdated."""
        self.writer.say(f'invalidate key={key}')
        answer = json.loads(self.writer.line(30))
        self.set_floor(answer['asked'])
        return answer['errors']

    def set_floor(self, at):
        with open(os.path.join(self.folder, 'floor'), 'r+b' if at else 'wb') as floor:
            floor.write(struct.pack('<Q', at))

    def reads(self, key, what='begun'):
        """(process, ns) of each read of the source."""
        try:
            with open(os.path.join(self.folder, 'reads')) as record:
                lines = [line.split() for line in record if line.endswith('\n')]
        except FileNotFoundError:
            return []
        return [(int(process), int(at)) for kind, of, process, at in lines if (kind, of) == (what, key)]

    def loads(self, key):
        return len(self.reads(key))

    def commands(self, work):
        """Runs `work`. Returns the number of commands that clients sent meanwhile, and the result."""
        monitor = Monitor(self.server.port)
        try:
            answer = work()
            time.sleep(0.05)
        finally:
            monitor.close()
        return sum(monitor.sent.values()), answer

    def without_end(self):
        """Keys without a TTL."""
        redis, cursor, found = self.server.command, '0', 0
        while True:
            cursor, keys = redis('SCAN', cursor, 'COUNT', 1000)
            found += sum(redis('PTTL', key) == -1 for key in keys)
            if cursor == '0':
                return found


class Answers:
    """Merges the answers of the processes."""

    def __init__(self, each):
        self.each = each
        some = [one['all'] for one in each if one['all']['n']]
        self.answered = sum(one['n'] for one in some)
        self.errors = sum(one['errors'] for one in each)
        self.error = next((one['error'] for one in each if one['error']), '')
        self.unanswered = sum(one['unanswered'] for one in each)
        self.old = sum(one['old'] for one in each)
        self.ends = sorted(end for one in each for end in one['ends'])
        # Merged quantiles: the mean of the medians, and the maximum of the others.
        self.p50_ms = sum(one['p50_us'] * one['n'] for one in some) / max(1, self.answered) / 1000
        self.p99_ms = max((one['p99_us'] for one in some), default=0) / 1000

    def how(self, word):
        return sum(one['by'].get(word, {'n': 0})['n'] for one in self.each)
