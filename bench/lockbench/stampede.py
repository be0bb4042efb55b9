"""The scenes of a cache stampede. Each returns {metric: value} for one policy."""
import time

from .fleet import Fleet

STATES = ['cold', 'soft-expired', 'hard-expired', 'invalidated', 'flushed']
POLICIES = ['none', 'process', 'lock100', 'lock25', 'amalgam-cache', 'cachekit-rs', 'leasehold', 'leasehold-kept']
RIVALS = ('amalgam-cache', 'cachekit-rs')
GUARDS = [policy for policy in POLICIES if policy not in ('none', 'process')]
EVENT = 0.15  # s after the start of the traffic


def event(fleet, key, state, **traffic):
    """Traffic on an entry in this state, or during this event. Counts the loads and the answers."""
    if state.endswith('expired'):
        fleet.prime(key, fresh_ms=1000, stale_ms=60_000 if state == 'soft-expired' else 0)
        time.sleep(1.5)  # the store may follow the loader's answer
    elif state != 'cold':
        fleet.prime(key)
        fleet.offer(key, callers=1, takes_ms=1)  # fills the memory layer of policies that have one
        traffic['secs'] += EVENT
    before = fleet.loads(key)
    start = fleet.tell(fleet.readers, key, **traffic)
    if state in ('invalidated', 'flushed'):
        time.sleep(max(0, start / 1e9 + EVENT - time.monotonic()))
        if state == 'invalidated':
            fleet.invalidate(key)
        else:
            fleet.server.command('FLUSHALL')
    answers = fleet.told(fleet.readers)
    return fleet.loads(key) - before, answers


def states(fleet, rate, takes_ms, only=STATES):
    figures = {}
    for state in only:
        loads, answers = event(fleet, fleet.key(), state, rate=rate, takes_ms=takes_ms, secs=takes_ms / 1000 + 0.4)
        own = {'loads': loads, 'answered': answers.answered, 'errors': answers.errors + answers.unanswered, 'old': answers.old,
               'p50_ms': answers.p50_ms, 'p99_ms': answers.p99_ms}
        figures.update({f'{state}.{metric}': value for metric, value in own.items()})
    return figures


def wake(fleet, callers=50, takes_ms=300):
    """The time from the source's answer until the waiters have it. A second round counts the commands of waiting."""
    key = fleet.key()
    answers = fleet.offer(key, callers=callers, takes_ms=takes_ms)
    first = min(at for _, at in fleet.reads(key, 'ended'))
    late = [(end - first) / 1e6 for end in answers.ends]
    again = fleet.key()
    sent, answered = fleet.commands(lambda: fleet.offer(again, callers=callers, takes_ms=takes_ms))
    return {'loads': fleet.loads(key), 'late_p50_ms': late[len(late) // 2], 'late_p99_ms': late[len(late) * 99 // 100],
            'sent_per_waiter': sent / max(1, answered.answered), 'errors': answers.errors}


def reads(fleet, rate, secs):
    """Time and commands of a hit and a stale read. Without stale values, the latter is the wait for the load."""
    figures = {}
    for kind in ('hit', 'stale'):
        takes_ms = (secs + 0.5) * 1000 if kind == 'stale' else 1

        def ready():
            key = fleet.key()
            fleet.prime(key, fresh_ms=1000 if kind == 'stale' else 60_000)
            fleet.offer(fleet.key(), callers=1, takes_ms=1)  # connects, and learns the server's clock
            if kind == 'stale':
                time.sleep(1.05)
            return key
        traffic = dict(rate=rate, secs=secs, takes_ms=takes_ms)
        answers = fleet.offer(ready(), **traffic)
        key = ready()
        sent, counted = fleet.commands(lambda: fleet.offer(key, **traffic))
        figures.update({f'{kind}.p50_ms': answers.p50_ms, f'{kind}.p99_ms': answers.p99_ms, f'{kind}.errors': answers.errors,
                        f'{kind}.sent_per_read': sent / max(1, counted.answered)})
    return figures


def death(fleet, takes_ms=60_000):
    """Kills the loader while other processes wait."""
    key = fleet.key()
    victim, others = fleet.readers[0], fleet.readers[1:]
    fleet.tell([victim], key, callers=1, takes_ms=takes_ms)
    deadline = time.monotonic() + 10
    while not fleet.loads(key) and time.monotonic() < deadline:
        time.sleep(0.01)
    fleet.tell(others, key, callers=20, takes_ms=20)
    time.sleep(max(1, fleet.lease_ms / 2000))
    victim.process.kill()
    killed = time.monotonic_ns()
    answers = fleet.told(others)
    after = [at for _, at in fleet.reads(key) if at > killed]
    return {'next_load_ms': (after[0] - killed) / 1e6 if after else None, 'loads_after': len(after),
            'loads_before': fleet.loads(key) - len(after), 'errors': answers.errors + answers.unanswered,
            'keys_without_end': fleet.without_end()}


def slow(fleet, takes_ms, secs, **settings):
    """A load that takes longer than its lease, under traffic."""
    key = fleet.key()
    answers = fleet.offer(key, rate=100, secs=secs, takes_ms=takes_ms, **settings)
    ended = [at for _, at in fleet.reads(key, 'ended')]
    first = min(ended, default=0)
    late = [at for _, at in fleet.reads(key) if first and at > first + 50_000_000]
    return {'loads': fleet.loads(key), 'loads_after_first_value': len(late), 'answered': answers.answered,
            'errors': answers.errors + answers.unanswered, 'p50_ms': answers.p50_ms}


def failing(fleet, secs, back_off_ms):
    """A failing source, under traffic."""
    key = fleet.key()
    answers = fleet.offer(key, rate=1000, secs=secs, takes_ms=10, fails=1, back_off_ms=back_off_ms, give_up_ms=1000)
    tries = fleet.loads(key)
    return {'tries': tries, 'tries_per_back_off': tries / (secs * 1000 / back_off_ms), 'told': answers.errors, 'waiting': answers.unanswered}


class Plan:
    """All scenes of one repetition."""

    def __init__(self, program, rates, quick, say, write):
        self.program, self.rates, self.quick, self.say, self.write = program, rates, quick, say, write

    def run(self, policy, scenes, repetition):
        for scene, lease_ms, work in self.of(policy):
            if scene.split('.')[0] not in scenes:
                continue
            try:
                with Fleet(self.program, policy, lease_ms) as fleet:
                    figures = work(fleet)
            except Exception as error:  # a failing policy is a finding; the others continue
                self.say(f'FAILED {policy} {scene}: {error!r}')
                continue
            self.say(repetition, policy, scene)
            named, scene = ('leasehold, not renewed', 'slow') if scene == 'slow.lapsing' else (policy, scene)
            for metric, value in figures.items():
                if value is not None:
                    self.write({'policy': named, 'scene': scene, 'metric': metric, 'value': round(value, 4), 'rep': repetition})

    def of(self, policy):
        """(scene, lease, function)"""
        for rate in self.rates:
            # The last is three times the lease.
            for takes_ms in (200,) if self.quick else (5, 200, 1500):
                yield f'states.{rate}.{takes_ms}', 500, lambda fleet, rate=rate, takes_ms=takes_ms: states(fleet, rate, takes_ms)
        if policy != 'none':
            yield 'wake', 2000, wake
        yield 'reads', 2000, lambda fleet: reads(fleet, 1000, 0.5 if self.quick else 2)
        takes_ms, lease_ms, secs = (1000, 600, 5) if self.quick else (5000, 3000, 40)
        if policy in GUARDS and policy != 'leasehold-kept':
            yield 'death', 2000, death
            yield 'slow', lease_ms, lambda fleet: slow(fleet, takes_ms, secs)
        if policy == 'leasehold':
            yield 'slow.lapsing', lease_ms, lambda fleet: slow(fleet, takes_ms, secs, load_at_most_ms=0)
        yield 'failing', 2000, lambda fleet: failing(fleet, 3 if self.quick else 10, 1000)


def smoke(program, say):
    """Checks the counts only; takes seconds. Returns 0 if they are right, else 1."""
    failed = 0
    with Fleet(program, 'leasehold', 10_000) as fleet:
        figures = states(fleet, 400, 20)
        for state in STATES:
            loads, errors, old = (figures[f'{state}.{metric}'] for metric in ('loads', 'errors', 'old'))
            good = (loads, errors, old) == (1, 0, 0)
            say(f'stampede, {state}: {loads} loads {errors} errors {old} old', '' if good else 'FAILED ' + fleet.said())
            failed += not good
        woken = wake(fleet, callers=10, takes_ms=20)
        good = (woken['loads'], woken['errors']) == (1, 0)
        say(f'stampede, 40 who wait: {woken["loads"]} loads {woken["errors"]} errors', '' if good else 'FAILED ' + fleet.said())
        failed += not good
    for policy in ('none', 'process', 'lock25'):
        with Fleet(program, policy, 10_000) as fleet:
            loads, answers = event(fleet, fleet.key(), 'cold', rate=400, takes_ms=20, secs=0.2)
            good = loads >= 1 and not answers.errors
            say(f'stampede, {policy}: {loads} loads', '' if good else 'FAILED ' + fleet.said())
            failed += not good
    return 1 if failed else 0
