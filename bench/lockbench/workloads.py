"""The workloads, and the figures of each."""
import collections
import itertools
import json
import os
import random
import statistics
import subprocess

from .machine import Usage
from .redis import NotStarted

WAITERS = 200
PROCESSES = 8

# One description per workload, for readers.
ABOUT = {
    'limits': 'the bare commands on blocking sockets',
    'W1': 'one worker, its own key, empty critical section; current_thread runtime',
    'W1m': 'W1 on a multi_thread runtime with 2 workers (Rust only)',
    'W1a': 'W1 on awake cores: a process at the lowest priority spins on each',
    'W1b': 'W1 while another program takes one core',
    'W1t': 'W1 over TLS (Leasehold only)',
    'W1d': 'W1 with appendfsync always',
    'W1i': 'instructions of the client in W1, counted by callgrind',
    'W2': '64 workers in one process, each its own key; multi_thread runtime with 2 workers',
    'W2b': 'W2 while another program takes one core',
    'W2t': 'W2 over TLS (Leasehold only)',
    'W2d': 'W2 with appendfsync always',
    'W1c': 'W1 on the one node of a cluster (Leasehold only)',
    'W2c': 'W2 on the one node of a cluster (Leasehold only)',
    'W2n': 'W2 on a cluster of three primaries (Leasehold only)',
    'W2i': 'instructions of the client in W2, counted by callgrind',
    'W3': '16 workers in one process on one key, empty critical section',
    'W4': '8 processes on one key, held for 5 ms, asked for again at once',
    'W4h': '8 processes on one key, held for 5 ms, asked for again after 20 ms (mean)',
    'W4f': '8 processes on one key, held for 12 ms, asked for again after 15 ms (mean)',
    'W5': 'W1 on a quorum of five servers',
    'W5w': 'W2 on a quorum of five servers',
    'W5s': 'W5 with one of the five servers stopped',
    'W5f': 'W4f on a quorum of five servers',
    'W7a': '64 readers in one process on one key, empty critical section',
    'W7b': '7 readers and a writer, a process each, on one key, held for 5 ms, asked for again at once',
    'W8': '8 processes with 8 workers each on 16 slots of one key, held for 5 ms, asked for again at once',
    'W9': '8 processes that take 3 of 10 keys at once, held for 5 ms, asked for again at once',
    'W6': '200 waiters of one process on a held lock',
    'W6p': '200 processes with one waiter each on a held lock (Rust only)',
}
# The base workload and the condition of each variant; W4f is one that only some peers take part in.
VARIANTS = {'W1a': ('W1', 'awake'), 'W1b': ('W1', 'busy'), 'W2b': ('W2', 'busy'), 'W1t': ('W1', 'tls'), 'W1d': ('W1', 'disk'),
            'W2t': ('W2', 'tls'), 'W1c': ('W1', 'node'), 'W2c': ('W2', 'node'), 'W2n': ('W2', 'cluster'),
            'W2d': ('W2', 'disk'), 'W1i': ('W1', 'counted'), 'W2i': ('W2', 'counted'),
            'W4f': ('W4f', None), 'W5': ('W1', 'quorum'), 'W5w': ('W2', 'quorum'), 'W5s': ('W1', 'silent'), 'W5f': ('W4f', 'quorum'),
            **{workload: (workload, None) for workload in ('W7a', 'W7b', 'W8', 'W9')}}
QUORUM = ['W5', 'W5w', 'W5s']
COUNTED = ['W1i', 'W2i']
# Held for, and the mean pause after the release, in ms.
HAND_OVERS = {'W4': (5, 0), 'W4h': (5, 20), 'W4f': (12, 15)}
SLOTS = 16
# The keys that each process of W9 takes in each cycle, then from the start again; a key is a digit.
PICKS = [[''.join(random.Random(100 * process + cycle).sample('0123456789', 3)) for cycle in range(64)] for process in range(PROCESSES)]
# The arguments of each process of a workload in which several hold at once.
TOGETHER = {
    'W7b': [['keys=one', 'cs_ms=5', 'take=read']] * 7 + [['keys=one', 'cs_ms=5']],
    'W8': [['keys=one', 'cs_ms=5', 'workers=8', f'take=slot/{SLOTS}']] * PROCESSES,
    'W9': [['keys=one', 'cs_ms=5', 'take=' + ','.join(picks)] for picks in PICKS],
}
# Who asks so much later than another, and gets the lock first, passes that one.
PASSED_NS = 30_000_000


def takes_part(spec, workload):
    if 'only' in spec:
        return workload in spec['only']
    if workload in VARIANTS:
        return workload in spec.get('variants', ())
    if workload == 'limits':
        return False
    if workload == 'W1m':
        return 'rust' in spec
    # 200 interpreters would test the machine's memory.
    return workload != 'W6p' or spec.get('processes', False)


def lacking(runner, chosen):
    """The workloads that cannot run here, with the reasons."""
    reasons = {}
    for workload in chosen:
        try:
            with runner.under(VARIANTS.get(workload, (workload, None))[1]):
                pass
        except NotStarted as reason:
            reasons[workload] = str(reason).strip().replace('\n', ' | ')[-300:]
    return reasons


def run(runner, peer, spec, workload, scale=1.0):
    """The figures of one repetition, or None if it failed. `scale` shortens the run."""
    base, condition = VARIANTS.get(workload, (workload, None))
    with runner.under(condition):
        if workload == 'limits':
            return limits(runner, spec, 4 * scale)
        if base in HAND_OVERS:
            return hand_overs(runner, peer, spec, workload, 8 * scale, *HAND_OVERS[base])
        if base in TOGETHER:
            return together(runner, peer, spec, workload, 8 * scale)
        if base in ('W6', 'W6p'):
            return idle(runner, peer, spec, workload, (20 if workload == 'W6p' else 10) * scale)
        return (counted if workload in COUNTED else loop)(runner, peer, spec, workload, 5 * scale)


def loop_arguments(workload):
    """The driver's arguments, without a time."""
    workers, keys, threads = {'W1': (1, 'distinct', 1), 'W1m': (1, 'distinct', 2), 'W2': (64, 'distinct', 2),
                              'W3': (16, 'one', 1), 'W7a': (64, 'one', 2)}[VARIANTS.get(workload, (workload,))[0]]
    return [*(['take=read'] if workload == 'W7a' else []), 'mode=loop', f'workers={workers}', f'keys={keys}', f'threads={threads}']


def counted(runner, peer, spec, workload, secs):
    """Compares a short run with a long one, so that start and end fall out. The load of the machine matters little."""
    runs = [runner.attempt(peer, spec, workload, [loop_arguments(workload)], share * secs) for share in (0.1, 0.6)]
    if not all(runs):
        return None
    (few, first), (many, second) = ((run.total('ops'), run.instructions) for run in runs)
    if many <= few:
        runner.say(f'FAILED {peer} {workload}: {few} cycles, then {many} in a longer run')
        return None
    return dict(instructions_op=round((second - first) / (many - few)), errors=sum(run.total('errors') for run in runs))


def loop(runner, peer, spec, workload, secs):
    run = runner.measure(peer, spec, workload, [loop_arguments(workload)], secs)
    if not run:
        return None
    said = run.results[0]
    done, changes = max(1, said['ops']), max(1, said['changes'])
    figures = dict(
        ops_s=said['ops'] / secs, pair_p50_us=said['pair_p50_us'], pair_p99_us=said['pair_p99_us'],
        # Two decimals: commands in flight at the end of the window belong to no cycle yet.
        sent_op=round(run.sent / done, 2), cli_cpu_us_op=run.usage.drivers * 1e6 / done, redis_cpu_us_op=run.usage.redis * 1e6 / done,
        switches_op=run.usage.switches / done, native_op=sum(run.calls.get(name, 0) for name in ('delifeq', 'delex')) / done,
        conns=run.connections, violations=said['violations'], errors=said['errors'], foreign=run.foreign)
    if workload in QUORUM:
        nodes = len(runner.server.living)
        scripts = sum(run.calls.get(name, 0) for name in ('eval', 'evalsha'))
        figures.update(
            acq_p50_us=said['acq_p50_us'], acq_p99_us=said['acq_p99_us'], sent_node_op=run.sent / done / nodes,
            scripts_node_op=scripts / done / nodes, calls_node_op=sum(run.calls.values()) / done / nodes)
    if workload == 'W3':
        figures.update(
            handoffs_s=said['changes'] / secs, sent_handoff=run.sent / changes, acq_p50_us=said['acq_p50_us'],
            acq_p99_us=said['acq_p99_us'], wait_max_over_mean=said['acq_max_us'] / max(1e-9, said['acq_mean_us']),
            min_worker=said['min_worker'], max_worker=said['max_worker'])
    return figures


def quantile(ordered, share):
    return ordered[round((len(ordered) - 1) * share)] if ordered else None


def hand_overs(runner, peer, spec, workload, secs, held, think):
    args = ['mode=loop', 'workers=1', 'keys=one', f'cs_ms={held}', f'think_ms={think}']
    run = runner.measure(peer, spec, workload, [args] * PROCESSES, secs, logs=True)
    return run and timeline(run, secs)


Turn = collections.namedtuple('Turn', 'acquired called process requested')


def turns_of(run):
    """The merged records of all processes, in the order of the turns."""
    turns = []
    for process, path in enumerate(run.logs):
        with open(path) as log:
            for line in log:
                requested, acquired, called, _, _ = map(int, line.split())
                turns.append(Turn(acquired, called, process, requested))
    return sorted(turns)


def overlaps(turns):
    """Turns that began before the previous turn ended."""
    return sum(after.acquired < before.called for before, after in zip(turns, turns[1:]))


def by_key(turns):
    """The turns of each key of W9."""
    keys, done = collections.defaultdict(list), collections.Counter()
    for turn in turns:
        picks = PICKS[turn.process]
        for key in picks[done[turn.process] % len(picks)]:
            keys[key].append(turn)
        done[turn.process] += 1
    return keys.values()


def is_writer(turn):
    """Whether a turn of W7b is of the process that writes."""
    return turn.process == len(TOGETHER['W7b']) - 1


def most_at_once(turns):
    # A turn that begins when another one ends comes after it.
    changes = sorted([(turn.acquired, 1) for turn in turns] + [(turn.called, -1) for turn in turns])
    return max(itertools.accumulate(change for _, change in changes), default=0)


def violations(workload, turns):
    """Turns that began while the holders did not admit them, by the records of all processes."""
    if workload == 'W8':
        return max(0, most_at_once(turns) - SLOTS)
    if workload == 'W9':
        return sum(map(overlaps, by_key(turns)))
    if workload != 'W7b':
        return overlaps(turns)
    count, any_ends, writer_ends = 0, 0, 0
    for turn in turns:
        count += turn.acquired < (any_ends if is_writer(turn) else writer_ends)
        any_ends = max(any_ends, turn.called)
        writer_ends = max(writer_ends, turn.called * is_writer(turn))
    return count


def covered(turns, end):
    """The time until `end` in which at least one of these turns lasted."""
    time = reached = 0
    for turn in turns:
        until = min(turn.called, end)
        time += max(0, until - max(turn.acquired, reached))
        reached = max(reached, until)
    return time


def passed(turns):
    """The share of turns that passed somebody: another one had asked PASSED_NS earlier, and got the lock later."""
    count, earliest = 0, float('inf')
    for turn in reversed(turns):
        count += earliest < turn.requested - PASSED_NS
        earliest = min(earliest, turn.requested)
    return count / max(1, len(turns))


def waits_ms(turns, end):
    """A wait cut by the end of the window counts up to there."""
    return [(min(turn.acquired, end) - turn.requested) / 1e6 for turn in turns if turn.requested < end]


def timeline(run, secs):
    """The figures of the turns in the window."""
    every = turns_of(run)
    turns = [turn for turn in every if turn.acquired < run.end]
    waits = waits_ms(every, run.end)
    per = collections.Counter(turn.process for turn in turns)
    per = [per[process] for process in range(len(run.logs))]
    pairs = list(zip(turns, turns[1:]))
    gaps = sorted((b.acquired - a.called) / 1e3 for a, b in pairs)
    between = sorted((b.acquired - a.called) / 1e3 for a, b in pairs if a.process != b.process)
    held = sum(min(turn.called, run.end) - turn.acquired for turn in turns)
    count, changes = max(1, len(turns)), max(1, len(between))
    return dict(
        util=held / (run.end - run.start), acquires_s=len(turns) / secs, handoffs_s=len(between) / secs,
        # The rate if each turn went to another process without a gap.
        handoffs_bound_s=1e9 * len(turns) / max(1, held),
        gap_p50_us=quantile(gaps, .5), gap_p99_us=quantile(gaps, .99),
        xgap_p50_us=quantile(between, .5), xgap_p99_us=quantile(between, .99),
        wait_max_ms=max(waits, default=None),
        wait_max_over_mean=max(waits) / max(1e-9, statistics.mean(waits)) if waits else None,
        passed=passed(every), starved=sum(1 for turns_of_one in per if turns_of_one < 0.1 * len(turns) / len(per)),
        min_proc=min(per), max_proc=max(per), sent_acquire=run.sent / count, sent_handoff=run.sent / changes,
        cli_cpu_us_acquire=run.usage.drivers * 1e6 / count, redis_cpu_us_acquire=run.usage.redis * 1e6 / count,
        violations=overlaps(turns), conns=run.connections, errors=run.total('errors'), foreign=run.foreign)


def together(runner, peer, spec, workload, secs):
    run = runner.measure(peer, spec, workload, TOGETHER[workload], secs, logs=True)
    if not run:
        return None
    every = turns_of(run)
    turns = [turn for turn in every if turn.acquired < run.end]
    count, window = max(1, len(turns)), run.end - run.start
    figures = dict(
        acquires_s=len(turns) / secs, sent_acquire=run.sent / count, wait_max_ms=max(waits_ms(every, run.end), default=None),
        min_worker=min(result['min_worker'] for result in run.results), max_worker=max(result['max_worker'] for result in run.results),
        cli_cpu_us_acquire=run.usage.drivers * 1e6 / count, redis_cpu_us_acquire=run.usage.redis * 1e6 / count,
        violations=violations(workload, every), conns=run.connections, errors=run.total('errors'), foreign=run.foreign)
    if workload == 'W7b':
        writer = [turn for turn in every if is_writer(turn)]
        waits = sorted(waits_ms(writer, run.end))
        reading = covered([turn for turn in turns if not is_writer(turn)], run.end)
        figures.update(
            writes_s=sum(map(is_writer, turns)) / secs, writer_p50_ms=quantile(waits, .5), writer_p99_ms=quantile(waits, .99),
            read_share=reading / max(1, window - covered(writer, run.end)))
    elif workload == 'W8':
        held = sum(min(turn.called, run.end) - turn.acquired for turn in turns)
        figures.update(util=held / (SLOTS * window), most_at_once=most_at_once(every))
    else:
        figures.update(handoffs_s=sum(a.process != b.process for key in by_key(turns) for a, b in zip(key, key[1:])) / secs)
    return figures


def idle(runner, peer, spec, workload, secs):
    each = [['mode=idle', f'workers={WAITERS}']]
    if workload == 'W6p':
        each = [['mode=idle', 'workers=0', 'settle_ms=0']] + [['mode=wait', 'workers=1']] * WAITERS
    run = runner.measure(peer, spec, workload, each, secs, watch=True)
    if not run:
        return None
    return dict(sent_s=run.sent / secs, calls_s=sum(run.calls.values()) / secs,
                cli_cpu_pct=100 * run.usage.drivers / run.usage.wall, redis_cpu_pct=100 * run.usage.redis / run.usage.wall,
                conns=run.connections, violations=run.total('violations'), errors=run.total('errors'), foreign=run.foreign)


def limits(runner, spec, secs):
    """Figures named `part.metric`, of the least disturbed run."""
    return runner.least_disturbed(lambda: limits_once(runner, spec, secs), lambda figures: figures['foreign'])


def limits_once(runner, spec, secs):
    runner.server.command('FLUSHALL')
    command = [*spec['command'], f'port={runner.server.port}', f'secs={secs}']
    usage = Usage([], runner.server.pids)
    children = sum(os.times()[2:4])
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60 + 20 * secs)
    except subprocess.TimeoutExpired:
        runner.say('FAILED limits: it hangs')
        return None
    usage.end()
    if done.returncode:
        runner.say('FAILED limits: ' + done.stderr[-500:])
        return None
    figures = {f'{line["part"]}.{line["metric"]}': line['value'] for line in map(json.loads, done.stdout.splitlines())}
    # The program has ended, so its CPU counts as that of child processes.
    figures['foreign'] = max(0.0, usage.foreign - (sum(os.times()[2:4]) - children) / usage.wall)
    return figures
