"""The parts of `scale` that run in one process of the Rust program, each on a fresh redis-server."""
import json
import subprocess

from .redis import Server

PARTS = ['renewal', 'memory', 'cycles', 'curve', 'phase', 'names', 'crash', 'failover']


def decades(most):
    """1, 10, 100, ... up to `most`."""
    count = 1
    while count <= most:
        yield count
        count *= 10


class Parts:
    def __init__(self, program, given, say, write):
        self.program, self.given, self.say, self.write = program, given, say, write

    def run(self, part):
        """Runs one part. True if all its steps were measured."""
        return all([self.one(*arguments) for arguments in self.plan(part)])

    def plan(self, part):
        given, short = self.given, self.given.quick
        if part == 'renewal':
            ttl = 2_000 if short else 30_000
            return [('renewal', f'leases={given.leases}', f'ttl_ms={ttl}', f'minutes={given.minutes}')]
        if part == 'memory':
            held = [(what, f'leases={given.leases}', f'renewed={int(not short)}') for what in ('held', 'readers', 'permits')]
            return [*held, ('waiters', f'waiters={given.waiters}')]
        if part == 'cycles':
            return [('cycles', f'cycles={given.cycles}', f'how={how}') for how in ('linger', 'drop')]
        if part == 'curve':
            return [('curve', f'waiting={count}', f'secs={1 if short else 10}') for count in decades(given.clients)]
        if part == 'phase':
            return [('phase', f'readers={given.readers}')]
        return [('names', f'names={given.names}', f'secs={0.5 if short else 5}')]

    def one(self, name, *args):
        with Server() as server:
            command = [self.program, name, f'port={server.port}', *args]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
            try:
                for line in process.stdout:
                    self.write(json.loads(line))
                status = process.wait()
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        if status:
            self.say(f'FAILED {name} {" ".join(args)}: status {status}')
        return status == 0
