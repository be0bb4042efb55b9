"""The tables of a raw file: medians, with the least and the most of the repetitions."""
import collections
import json
import statistics

from . import targets, workloads

# Columns of each workload: figure, heading. The ratio column compares the first figure with that of the peer in BESIDE, or of rslock.
COLUMNS = {
    'loop': [('ops_s', 'cycles/s'), ('pair_p50_us', 'p50 us'), ('pair_p99_us', 'p99 us'), ('sent_op', 'commands/cycle'),
             ('switches_op', 'switches/cycle'), ('cli_cpu_us_op', 'client CPU us'), ('redis_cpu_us_op', 'Redis CPU us'), ('conns', 'connections'), ('errors', 'errors')],
    'quorum': [('ops_s', 'cycles/s'), ('pair_p50_us', 'p50 us'), ('pair_p99_us', 'p99 us'), ('acq_p50_us', 'acquire p50 us'),
               ('acq_p99_us', 'acquire p99 us'), ('scripts_node_op', 'scripts/node, cycle'), ('sent_node_op', 'commands/node, cycle'),
               ('calls_node_op', 'with those of scripts'), ('switches_op', 'switches/cycle'), ('cli_cpu_us_op', 'client CPU us'), ('redis_cpu_us_op', 'Redis CPU us'), ('errors', 'errors')],
    'counted': [('instructions_op', 'instructions/cycle'), ('errors', 'errors')],
    'W3': [('handoffs_s', 'hand-overs/s'), ('ops_s', 'cycles/s'), ('acq_p50_us', 'wait p50 us'), ('acq_p99_us', 'wait p99 us'),
           ('sent_handoff', 'commands/hand-over'), ('wait_max_over_mean', 'wait max/mean'), ('min_worker', 'fewest turns'),
           ('max_worker', 'most turns'), ('violations', 'violations'), ('errors', 'errors')],
    'hand_overs': [('handoffs_s', 'hand-overs/s'), ('handoffs_bound_s', 'bound/s'), ('util', 'utilisation'), ('xgap_p50_us', 'gap p50 us'),
                   ('xgap_p99_us', 'gap p99 us'), ('sent_handoff', 'commands/hand-over'), ('wait_max_over_mean', 'wait max/mean'),
                   ('passed', 'passed others'), ('starved', 'starved'), ('violations', 'violations'), ('errors', 'errors')],
    'W7b': [('read_share', 'time with readers, of that without a writer'), ('writer_p50_ms', 'wait of the writer, p50 ms'), ('writer_p99_ms', 'p99 ms'),
            ('acquires_s', 'leases/s'), ('writes_s', 'writes/s')],
    'W8': [('util', 'slots in use'), ('acquires_s', 'leases/s'), ('most_at_once', 'most at once')],
    'W9': [('handoffs_s', 'hand-overs/s'), ('acquires_s', 'sets/s')],
    'idle': [('sent_s', 'commands/s'), ('calls_s', 'with those of scripts'), ('cli_cpu_pct', 'client CPU %'), ('redis_cpu_pct', 'Redis CPU %'),
             ('conns', 'connections'), ('violations', 'violations'), ('errors', 'errors')],
}
TOGETHER = [('sent_acquire', 'commands/lease'), ('wait_max_ms', 'longest wait, ms'), ('min_worker', 'fewest turns'), ('max_worker', 'most turns'),
            ('cli_cpu_us_acquire', 'client CPU us'), ('redis_cpu_us_acquire', 'Redis CPU us'), ('violations', 'violations'), ('errors', 'errors')]
COLUMNS.update({workload: COLUMNS[workload] + TOGETHER for workload in workloads.TOGETHER})
KIND = {**dict.fromkeys(['W1', 'W1m', 'W2', *workloads.VARIANTS], 'loop'), **dict.fromkeys(workloads.QUORUM, 'quorum'),
        **dict.fromkeys(workloads.COUNTED, 'counted'),
        'W3': 'W3', **dict.fromkeys(['W4', 'W4h', 'W4f', 'W5f'], 'hand_overs'), 'W6': 'idle', 'W6p': 'idle', **{workload: workload for workload in workloads.TOGETHER}}
BESIDE = {'W7a': 'redisson-sketch', 'W7b': 'redisson-sketch', 'W8': 'redis-semaphore', 'W9': 'node-redlock5b'}
# The most that a count of instructions may rise above the one on record.
MOST_RISE = 0.03


def records(path):
    with open(path) as raw:
        yield from map(json.loads, raw)


def read(path):
    """The facts of the machine, the peers that were skipped, and the runs {(peer, workload): {repetition: {metric: value}}}."""
    machine, skipped, by = {}, {}, collections.defaultdict(lambda: collections.defaultdict(dict))
    for record in records(path):
        machine = record.get('machine', machine)
        skipped.update(record.get('skipped', {}))
        if 'metric' in record:
            by[(record['peer'], record['workload'])][record['rep']][record['metric']] = record['value']
    return machine, skipped, by


def usable(by, foreign_max):
    """The undisturbed runs of each peer and workload. If there are none: all runs, and a mark."""
    result, disturbed = {}, set()
    for key, runs in by.items():
        good = {repetition: run for repetition, run in runs.items() if run.get('foreign', 0) < foreign_max}
        if not good:
            disturbed.add(key)
        result[key] = good or runs
    return result, disturbed


def by_repetition(result):
    """The figures of each repetition: {repetition: {(peer, workload): {metric: value}}}."""
    found = collections.defaultdict(dict)
    for key, runs in result.items():
        for repetition, run in runs.items():
            found[repetition][key] = run
    return found


def values(result, peer, workload, metric):
    """{repetition: value}"""
    return {repetition: run[metric] for repetition, run in result.get((peer, workload), {}).items() if metric in run}


def ratios(mine, others):
    """The ratios of the repetitions that measured both."""
    return {repetition: value / others[repetition] for repetition, value in mine.items() if others.get(repetition)}


def number(value):
    if value is None:
        return '-'
    if value == int(value) or abs(value) >= 1000:
        return f'{round(value):,}'
    return f'{value:.0f}' if abs(value) >= 100 else f'{value:.3g}'


def ratio(value, other):
    return '-' if value is None or not other else f'{number(value / other)} x'


def spread(figures, unit=''):
    """`median (least to most)`; the median alone if all print alike."""
    if not figures:
        return '-'
    middle, least, most = (number(of(figures.values())) for of in (statistics.median, min, max))
    return middle + unit + ('' if least == most else f' ({least} to {most})')


def machine_line(machine):
    text = '{cpu}, {cores} cores, {memory_gib} GiB; Linux {kernel}; {server} {redis}; {rustc}; Python {python}; Node {node}; commit {commit}; {date}.'
    return text.format(**{'server': 'Redis', **{name: value or '(none)' for name, value in machine.items()}})


def rows_of(workload, result, disturbed):
    columns = COLUMNS[KIND[workload]]
    first = columns[0][0]
    beside = BESIDE.get(workload, 'rslock')
    other = values(result, beside, workload, first)
    yield ['', *(heading for _, heading in columns), f'{columns[0][1]} / {beside}']
    for peer, of in result:
        if of == workload:
            mark = ' *' if (peer, workload) in disturbed else ''
            yield [peer + mark, *(spread(values(result, peer, workload, name)) for name, _ in columns),
                   spread(ratios(values(result, peer, workload, first), other), ' x')]


def rows_of_home(result):
    """The rate of a client on the workers' runtime, and of one on its own thread."""
    yield ['', 'figure', 'leasehold', 'leasehold-home', 'leasehold / leasehold-home']
    for workload, kind in KIND.items():
        name, heading = COLUMNS[kind][0]
        near, home = (values(result, peer, workload, name) for peer in ('leasehold', 'leasehold-home'))
        if home:
            yield [workload, heading, spread(near), spread(home), spread(ratios(near, home), ' x')]


def rows_of_limits(result):
    def bare(part, metric):
        return values(result, 'limits', 'limits', f'{part}.{metric}')
    own = [('two-round-trips', 'leasehold', 'W1'), ('release-with-next', 'leasehold-drop', 'W1'), ('pipelined64', 'leasehold', 'W2'),
           ('publish', 'leasehold', 'W3'), ('publish.held5ms', 'leasehold', 'W4')]
    yield ['bare commands', 'per second', 'p50 us', 'p99 us', 'Redis CPU us', 'Leasehold', 'its p50 us', 'Leasehold / bare', 'its Redis CPU us', 'of that, Leasehold / bare']
    for part, peer, workload in own:
        kind = ('handoffs_s', 'gap') if part.startswith('publish') else ('ops_s', 'pair')
        # A hand-over inside one process sends nothing, so W3 has a rate only.
        time = {} if workload == 'W3' else values(result, peer, workload, 'xgap_p50_us' if workload == 'W4' else 'pair_p50_us')
        rate, own_rate = bare(part, kind[0]), values(result, peer, workload, kind[0])
        cpu, own_cpu = bare(part, 'redis_cpu_us_op'), values(result, peer, workload, 'redis_cpu_us_op')
        yield [part, spread(rate), spread(bare(part, f'{kind[1]}_p50_us')), spread(bare(part, f'{kind[1]}_p99_us')), spread(cpu),
               f'{peer} {workload}', spread(time), spread(ratios(own_rate, rate), ' x'), spread(own_cpu), spread(ratios(own_cpu, cpu), ' x')]


def of_targets(every, undisturbed):
    """The section of the targets, if there are some. The worst of the repetitions counts; violations count in disturbed ones too."""
    rows = [['', 'target', 'measured', 'bound', 'beside', 'ratio', 'met']]
    for target in targets.TARGETS:
        if any(workload == target.workload for figures in every for _, workload in figures):
            measured, bound, other, met = target.worst(every if target.metric == 'violations' else undisturbed)
            says = {True: 'yes', False: '**no**', None: 'not measured'}[met]
            rows.append([target.workload, target.text, number(measured), f'{target.sign} {number(bound)}', number(other), ratio(measured, other), says])
    return [('Targets', rows)] if rows[1:] else []


def markdown(rows):
    head, *body = rows
    line = '|' + '|'.join(' --- ' if n == 0 else ' ---: ' for n in range(len(head))) + '|'
    return '\n'.join(['| ' + ' | '.join(head) + ' |', line] + ['| ' + ' | '.join(row) + ' |' for row in body])


def plain(rows):
    rows = [[cell.replace('**', '') for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return '\n'.join('  '.join(cell.ljust(width) if n == 0 else cell.rjust(width)
                               for n, (cell, width) in enumerate(zip(row, widths))).rstrip() for row in rows)


def page(lines, sections, as_markdown):
    """One text: the lines, then the tables. A section is a title and its rows."""
    table, title = (markdown, '### {}\n') if as_markdown else (plain, '{}')
    return '\n\n'.join([*lines, *(title.format(text) + '\n' + table(list(rows)) for text, rows in sections)])


def render(path, as_markdown, foreign_max):
    """All tables of a raw file, as one text."""
    machine, skipped, by = read(path)
    result, disturbed = usable(by, foreign_max)
    chosen = {workload for _, workload in result}
    lines, sections = [machine_line(machine)] if machine else [], of_targets(by_repetition(by).values(), by_repetition(result).values())
    repeats = {len(runs) for runs in by.values()}
    lines.append(f'Median (least to most) of {"-".join(map(str, sorted({min(repeats), max(repeats)})))} runs. A ratio compares two figures of one '
                 'repetition. A target shows its worst repetition.' if repeats else 'Nothing was measured.')
    if disturbed:
        lines.append(f'* every run of this row was disturbed: others used {foreign_max} cores or more.')
    lines += [f'Skipped: {peer}: {reason}' for peer, reason in skipped.items()]
    if 'leasehold-home' in {peer for peer, _ in result}:
        sections.append(("I/O on the workers' runtime (leasehold) and on the client's own thread (leasehold-home)", rows_of_home(result)))
    for workload, about in workloads.ABOUT.items():
        if workload in chosen:
            rows = rows_of_limits(result) if workload == 'limits' else rows_of(workload, result, disturbed)
            sections.append((f'{workload}: {about}', rows))
    return page(lines, sections, as_markdown)


def compare(path, record, peers, chosen):
    """The counts of instructions in `path` beside those on record: lines to read, and the failures among them."""
    (machine, _, now), (known, _, before) = read(path), read(record)
    # Compilers differ in the code they make; CPUs in the code that the C library chooses.
    lines = [f'Here: {machine.get(what)}. On record: {known.get(what)}. The counts may differ for that.'
             for what in ('rustc', 'cpu') if machine.get(what) != known.get(what)]
    failures = []
    for workload in chosen:
        for peer in peers:
            new, old = (values(runs, peer, workload, 'instructions_op').values() for runs in (now, before))
            if not new or not old:
                failures.append(f'{workload} {peer}: ' + ('not measured' if old else 'no instructions on record'))
                continue
            # A reply that comes late costs instructions, so only a rise of all repetitions is one.
            new, old = min(new), statistics.median(old)
            line = f'{workload} {peer}: {number(new)} instructions/cycle, {number(old)} on record: {new / old - 1:+.1%}'
            if new > old * (1 + MOST_RISE):
                failures.append(f'{line}, more than {MOST_RISE:.0%}')
            else:
                lines.append(line)
    return lines, failures
