"""The tables of `stampede`."""
import collections
import statistics

from .stampede import STATES
from .table import machine_line, number, page, ratio, records


def read(path):
    """The facts of the machine, and the values {(scene, policy): {metric: [value of each repetition]}}."""
    facts, figures = {}, collections.defaultdict(lambda: collections.defaultdict(list))
    for record in records(path):
        facts.update(record if 'machine' in record else {})
        if 'metric' in record:
            figures[(record['scene'], record['policy'])][record['metric']].append(record['value'])
    return facts, figures


def median(values):
    return statistics.median(values) if values else None


def spread(values):
    """The median, followed by the maximum if they differ."""
    if not values:
        return '-'
    middle, most = statistics.median(values), max(values)
    return number(middle) if number(most) == number(middle) else f'{number(middle)} (most {number(most)})'


def policies(figures, scene):
    return [(policy, own) for (of, policy), own in figures.items() if of == scene]


def of_states(figures, scene):
    _, rate, takes_ms = scene.split('.')
    rows = [['', *STATES, 'longest p99 ms', 'old as fresh', 'errors']]
    for policy, own in policies(figures, scene):
        worst = max(median(own[f'{state}.p99_ms']) or 0 for state in STATES)
        bad = [number(sum(sum(own[f'{state}.{what}']) for state in STATES)) for what in ('old', 'errors')]
        rows.append([policy, *(spread(own[f'{state}.loads']) for state in STATES), number(worst), *bad])
    yield f'Loads for each expiry: {int(rate):,} requests/s, a load takes {takes_ms} ms', rows


def listed(figures, scene, columns, beside=None):
    """Medians. `beside` = (policy, metric): adds the ratio of the metric to that policy's."""
    other = median(figures[(scene, beside[0])][beside[1]]) if beside and (scene, beside[0]) in figures else None
    yield ['', *(text for _, text in columns), *([f'{dict(columns)[beside[1]]} / {beside[0]}'] if beside else [])]
    for policy, own in policies(figures, scene):
        cells = [spread(own[metric]) if metric.startswith(('loads', 'tries', 'keys')) else number(median(own[metric])) for metric, _ in columns]
        yield [policy, *cells, *([ratio(median(own[beside[1]]), other)] if beside else [])]


def reads(figures):
    rows = [['', 'hit p50 ms', 'p99 ms', 'commands', 'stale p50 ms', 'p99 ms', 'commands', 'stale p99 / hit p99', 'hit p50 / none']]
    none = median(figures[('reads', 'none')]['hit.p50_ms']) if ('reads', 'none') in figures else None
    for policy, own in policies(figures, 'reads'):
        cells = [median(own[f'{kind}.{what}']) for kind in ('hit', 'stale') for what in ('p50_ms', 'p99_ms', 'sent_per_read')]
        rows.append([policy, *map(number, cells), ratio(cells[4], cells[1]), ratio(cells[0], none)])
    yield 'A read of a fresh value and of a stale one, while it is loaded; without stale values, the wait', rows


TITLES = {
    'wake': ('200 who wait: time from the source\'s answer to theirs', [
        ('loads', 'loads'), ('late_p50_ms', 'p50 ms'), ('late_p99_ms', 'p99 ms'), ('sent_per_waiter', 'commands per waiter'), ('errors', 'errors')],
        ('lock25', 'late_p99_ms')),
    'death': ('kill -9 of the process that loads, with a lease of 2 s', [
        ('next_load_ms', 'next load after ms'), ('loads_after', 'loads'), ('errors', 'errors'), ('keys_without_end', 'keys without end')], None),
    'slow': ('A load that takes longer than its lease', [
        ('loads', 'loads'), ('loads_after_first_value', 'of them after the first value'), ('answered', 'answered'), ('errors', 'errors'),
        ('p50_ms', 'p50 ms')], None),
    'failing': ('A source that is down, 1,000 requests/s, back-off 1 s', [
        ('tries', 'reads of the source'), ('tries_per_back_off', 'for each back-off'), ('told', 'told of it'), ('waiting', 'still waiting a second after the last')], None),
}


def render(path, as_markdown):
    facts, figures = read(path)
    lines = [machine_line(facts['machine'])] if 'machine' in facts else []
    lines.append(f'Build: {facts.get("build", "?")}. Load average at the start: {facts.get("load", "?")}. Repetitions: {facts.get("repetitions", "?")}.')
    lines += [f'Skipped: {policy}: {why}' for policy, why in facts.get('skipped', {}).items()]
    sections = []
    for scene in sorted({scene for scene, _ in figures}, key=lambda scene: [int(part) for part in scene.split('.')[1:]]):
        if scene.startswith('states'):
            sections += of_states(figures, scene)
    for scene, (text, columns, beside) in TITLES.items():
        if any(of == scene for of, _ in figures):
            sections.append((text, listed(figures, scene, columns, beside)))
        if scene == 'wake' and any(of == 'reads' for of, _ in figures):
            sections += reads(figures)
    return page(lines, sections, as_markdown)
