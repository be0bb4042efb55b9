"""What the commands share: options, messages, files of raw figures, and how they end."""
import argparse
import contextlib
import json
import os
import signal
import sys
import time

from . import machine
from .peers import BENCH, Missing, need


def say(*words):
    print(time.strftime('%H:%M:%S'), *words, file=sys.stderr, flush=True)


def parser(doc):
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def some_of(known):
    """A type of argument: names of `known`, separated by commas."""
    def names(text):
        for name in text.split(','):
            if name not in known:
                raise argparse.ArgumentTypeError(f'{name} is none of {" ".join(known)}')
        return text.split(',')
    return names


def figure_options(options):
    """The options of a command that writes raw figures."""
    options.add_argument('--markdown', action='store_true', help='print the tables as markdown')
    options.add_argument('--out', metavar='FILE', help='the raw figures; default: a new file in bench/results')
    options.add_argument('--table', metavar='FILE', help='print the tables of this file of raw figures')


@contextlib.contextmanager
def figures(kind, out):
    """A new file of raw figures, `out` or one in bench/results: its path, and a function that writes a record."""
    path = out or os.path.join(BENCH, 'results', time.strftime(f'{kind}-%Y%m%d-%H%M%S.jsonl'))
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, 'w') as raw:
        def write(record):
            raw.write(json.dumps(record) + '\n')
            raw.flush()
        yield path, write
    say('raw figures:', os.path.relpath(path))


def facts(server='redis-server'):
    return machine.facts(BENCH, server)


def need_redis(server='redis-server'):
    need(server, 'Debian: apt-get install redis-server')


def end(work):
    """Ends the program with the status that `work` returns. SIGTERM and Ctrl-C let it clean up."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(work())
    except Missing as reason:
        sys.exit(f'bench: {reason}')
    except KeyboardInterrupt:
        sys.exit(130)
