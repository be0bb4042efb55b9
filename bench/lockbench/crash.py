"""Measures recovery after a SIGKILL of the holder, and of the first of two waiters, with real processes."""
import contextlib
import random
import statistics
import time

from .quorum import Five
from .redis import Server
from .runner import Driver, Failed

MS = 1_000_000


class Processes:
    """The processes of one case. Leaving the context ends all of them."""

    def __init__(self, program, server, name):
        self.command = [program]
        self.rest = [*server.arguments(), f'name={name}', 'threads=1']
        self.all = []

    def start(self, what, ttl_ms):
        driver = Driver([*self.command, what, *self.rest, f'ttl_ms={ttl_ms}'], {}, None)
        self.all.append(driver)
        return driver

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for driver in self.all:
            driver.end()


def moment(driver, word, limit=30):
    """The time at which the process printed `word`."""
    said, at = driver.line(limit).split()
    if said != word:
        raise Failed(f'{driver.name} said {said} instead of {word}')
    return int(at)


def holder_dies(program, server, number):
    """From the end of the dead holder's TTL to the waiter's start, in ms."""
    name = f'holder:{number}'
    with Processes(program, server, name) as processes:
        holder = processes.start('hold', 1000)
        moment(holder, 'HELD')
        waiter = processes.start('wait', 1000)
        moment(waiter, 'QUEUED')
        time.sleep(random.uniform(0.1, 0.8))  # at any point between two renewals
        left = server.command('PTTL', name)
        killed = time.monotonic_ns()
        holder.process.kill()
        return (moment(waiter, 'HELD') - killed) / MS - left


def release(program, server, name, dead_first):
    """From a release to the start of the living waiter, in ms."""
    with Processes(program, server, name) as processes:
        holder = processes.start('hold', 30_000)
        moment(holder, 'HELD')
        if dead_first:
            first = processes.start('wait', 30_000)
            moment(first, 'QUEUED')
        waiter = processes.start('wait', 30_000)
        moment(waiter, 'QUEUED')
        time.sleep(0.1)
        if dead_first:
            first.process.kill()
            first.process.wait()
            time.sleep(0.05)
        holder.say('')
        released = moment(holder, 'RELEASE')
        return (moment(waiter, 'HELD') - released) / MS


# Each with its server.
CASES = {
    'crash.holder': (Server, holder_dies),
    'crash.holder.quorum': (Five, holder_dies),
    'crash.waiter.none_dead': (Server, lambda program, server, number: release(program, server, f'alive:{number}', False)),
    'crash.waiter.first_dead': (Server, lambda program, server, number: release(program, server, f'dead:{number}', True)),
}


def run(program, given, say, write):
    """Runs all cases. True if each succeeded."""
    times = {case: [] for case in CASES}
    failed = 0
    with contextlib.ExitStack() as ends:
        servers = {kind: ends.enter_context(contextlib.closing(kind())) for kind in (Server, Five)}
        servers[Five].empty()
        for number in range(given.crashes):
            for case, (kind, once) in CASES.items():  # interleaved, so all cases see equal conditions
                try:
                    times[case].append(once(program, servers[kind], number))
                except (Failed, ValueError) as reason:
                    say(f'FAILED {case}: {reason}')
                    failed += 1
    for case, values in times.items():
        if values:
            for metric, value in (('median_ms', statistics.median(values)), ('least_ms', min(values)), ('most_ms', max(values)), ('runs', len(values))):
                write({'part': case, 'metric': metric, 'value': round(value, 3)})
    return not failed
