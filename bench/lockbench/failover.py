"""Measures a failover, with real servers: how soon after the new primary's first answer leases are confirmed, and waiters served."""
import binascii
import contextlib
import itertools
import json
import statistics
import time

from .redis import Connection
from .runner import Driver, Failed
from .servers import SixNodes, Watched

MS = 1_000_000
LEASES, WAITERS = 1000, 50


def names_of_the_first(primaries):
    """Names of locks whose slots the first primary has."""
    names = (f'lock:{number}' for number in itertools.count())
    mine = (name for name in names if binascii.crc_hqx(name.encode(), 0) % 16384 < 16384 // primaries)
    return list(itertools.islice(mine, LEASES + WAITERS))


def until(holds, limit=30):
    """When it held first, by a look each millisecond."""
    deadline = time.monotonic() + limit
    while not holds():
        if time.monotonic() > deadline:
            raise Failed(f'no failover within {limit} s')
        time.sleep(0.001)
    return time.monotonic_ns()


class Probe:
    """Writes to a server."""

    def __init__(self, port, name):
        self.port, self.key, self.connection = port, f'{{{name}}}probe', None

    def writes(self):
        """Whether the server answers a write with OK. Sentinels end all connections of the one that they promote."""
        try:
            self.connection = self.connection or Connection(self.port)
            return self.connection('SET', self.key, 1) == 'OK'
        except RuntimeError:
            return False
        except OSError:
            self.close()
            return False

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None


def of_cluster(program):
    with contextlib.closing(SixNodes()) as cluster:
        primary, replica = cluster.servers[0], cluster.servers[3]
        return once(program, cluster, primary, replica, names_of_the_first(3), lambda: replica.command('CLUSTER', 'FAILOVER', 'TAKEOVER'))


def of_sentinels(program):
    with contextlib.closing(Watched()) as watched:
        primary, replica = watched.servers
        return once(program, watched, primary, replica, names_of_the_first(1), lambda: None)


def once(program, servers, primary, replica, names, take_over):
    """Moments in ms since the new primary's first answer, and counts."""
    driver = Driver([program, 'failover', *servers.arguments(), f'names={",".join(names)}', f'waiters={WAITERS}'], {}, None)
    try:
        driver.wait_ready()
        # The replica has all of it. A lease that is confirmed later lasts for longer than before.
        time.sleep(1)
        primary.command('SET', f'{{{names[0]}}}probe', 0)
        if primary.command('WAIT', 1, 10_000) != 1:
            raise Failed('the replica is behind')
        probe = Probe(replica.port, names[0])
        primary.process.kill()
        driver.say('')
        take_over()
        answers = until(probe.writes)
        probe.close()
        moments = {}
        if sentinels := getattr(servers, 'sentinels', []):
            name = lambda sentinel: sentinel.command('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', 'main') == ['127.0.0.1', str(replica.port)]  # noqa: E731
            moments['named'] = until(lambda: sum(map(name, sentinels)) >= 2)
        told = json.loads(driver.line(60))
        if told['lost'] or told['served'] != WAITERS:
            raise Failed(f'{told["lost"]} leases lost, {told["served"]} waiters served')
        moments.update({what: told[what] for what in ('confirmed', 'first', 'last')})
        return {what: (at - answers) / MS for what, at in moments.items()}
    finally:
        driver.end(5)


CASES = {'failover.cluster': of_cluster, 'failover.sentinel': of_sentinels}


def run(program, given, say, write):
    """Runs all cases. True if each succeeded."""
    times, failed = {}, 0
    for _ in range(given.failovers):
        for case, measure in CASES.items():
            try:
                found = measure(program)
            except (Failed, ValueError) as reason:
                say(f'FAILED {case}: {reason}')
                failed += 1
                continue
            say(case, *(f'{what} {ms:.0f}' for what, ms in found.items()))
            for what, ms in found.items():
                times.setdefault(f'{case}.{what}', []).append(ms)
    for part, values in times.items():
        for metric, value in (('median_ms', statistics.median(values)), ('least_ms', min(values)), ('most_ms', max(values)), ('runs', len(values))):
            write({'part': part, 'metric': metric, 'value': round(value, 3)})
    return not failed
