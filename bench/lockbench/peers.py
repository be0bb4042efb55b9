"""Builds the drivers of the peers. A peer that cannot be built is skipped with the reason; Leasehold itself must build."""
import json
import os
import shutil
import signal
import subprocess
import sys

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CACHE = os.path.join(BENCH, '.cache')
# Time limit of one installation step, in seconds, so a silent network does not delay peers that need none.
LIMIT = 300


class Missing(Exception):
    """The reason why a peer cannot take part."""


def manifest():
    with open(os.path.join(BENCH, 'peers.json')) as peers:
        return json.load(peers)


def need(program, what_for):
    if not shutil.which(program):
        raise Missing(f'{program} is not installed ({what_for})')


def run(command, cwd=BENCH):
    """Runs a build step quietly. If it fails, its output is the reason."""
    name = f'`{os.path.basename(command[0])} {" ".join(command[1:3])}`'
    # A separate process group, so its children end with it.
    step = subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            start_new_session=True)
    try:
        said, _ = step.communicate(timeout=LIMIT)
    except BaseException as ended:
        os.killpg(step.pid, signal.SIGKILL)
        step.wait()
        if isinstance(ended, subprocess.TimeoutExpired):
            raise Missing(f'{name} did not end within {LIMIT} s')
        raise
    if step.returncode:
        raise Missing(f'{name} failed: ' + ' | '.join(said.strip().splitlines()[-3:]))


def build_rust(binaries, peers, release=True):
    """Paths of the built programs by name; without `peers` no other lock library is built."""
    need('cargo', 'https://rustup.rs')
    need('cc', 'a C compiler, for SQLite and ring')
    command = ['cargo', 'build', '--locked', '--message-format=json-render-diagnostics']
    command += ['--release'] * release + ['--no-default-features'] * (not peers)
    for binary in binaries:
        command += ['--bin', binary]
    built = subprocess.run(command, cwd=os.path.join(BENCH, 'rust'), stdout=subprocess.PIPE, text=True)
    if built.returncode:
        raise Missing('`cargo build --locked` in bench/rust failed, see above. If its lock file is behind the library: '
                      'cargo update --workspace --manifest-path bench/rust/Cargo.toml')
    found = {}
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get('executable') and 'bin' in message['target']['kind']:
            found[message['target']['name']] = message['executable']
    return found


def once(name, pinned, make):
    """The cache folder `name`. It is rebuilt if the pinned versions have changed."""
    folder = os.path.join(CACHE, name)
    mark = os.path.join(folder, 'pinned')
    with open(os.path.join(BENCH, pinned)) as file:
        wanted = file.read()
    if os.path.exists(mark) and open(mark).read() == wanted:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    make(folder)
    with open(mark, 'w') as file:
        file.write(wanted)
    return folder


def venv(folder):
    """Creates a Python environment there. Returns the path of its pip."""
    run([sys.executable, '-m', 'venv', folder])
    return os.path.join(folder, 'bin', 'pip')


def build_python(name='python', pinned='python/requirements.txt'):
    def make(folder):
        run([venv(folder), 'install', '--quiet', '-r', os.path.join(BENCH, pinned)])
    return os.path.join(once(name, pinned, make), 'bin', 'python')


def build_node():
    need('node', 'https://nodejs.org')
    need('npm', 'it comes with node')

    def make(folder):
        for name in ('package.json', 'package-lock.json'):
            shutil.copy(os.path.join(BENCH, 'node', name), folder)
        run(['npm', 'ci', '--engine-strict', '--no-audit', '--no-fund', '--ignore-scripts'], cwd=folder)
    return os.path.join(once('node', 'node/package-lock.json', make), 'node_modules')


def build(names, say):
    """The commands of the peers that can run, and the reasons of the others."""
    peers, ready, skipped = manifest(), {}, {}
    wanted = {name: peers[name] for name in names}
    rust = sorted({spec['rust'] for spec in wanted.values() if 'rust' in spec})
    others = [binary for binary in rust if binary in ('distkit', 'rdlock', 'rslock')]
    programs, why = {}, {}
    if rust:
        say('building the Rust drivers')
        try:
            programs = build_rust(rust, peers=bool(others))
        except Missing as reason:
            own = [binary for binary in rust if binary not in others]
            if not others or not own:
                raise
            why = dict.fromkeys(others, str(reason))
            programs = build_rust(own, peers=False)
    lazily = {'python': build_python, 'node': build_node}
    made = {}
    for name, spec in wanted.items():
        try:
            if 'rust' in spec:
                if spec['rust'] not in programs:
                    raise Missing(why.get(spec['rust'], 'not built'))
                command = [programs[spec['rust']], *spec.get('args', [])]
            else:
                kind = 'python' if 'python' in spec else 'node'
                if kind not in made:
                    say(f'installing the {kind} peers')
                    try:
                        made[kind] = lazily[kind]()
                    except Missing as reason:
                        made[kind] = reason
                if isinstance(made[kind], Missing):
                    raise made[kind]
                if kind == 'python':
                    command = [made[kind], os.path.join(BENCH, 'python', 'driver.py'), 'peer=' + spec[kind]]
                else:
                    if spec[kind] == 'leasehold' and not (os.environ.get('LEASEHOLD') or shutil.which('leasehold')):
                        raise Missing('the command leasehold is not in PATH, and LEASEHOLD does not name it')
                    command = ['node', os.path.join(BENCH, 'node', 'driver.js'), 'peer=' + spec[kind]]
                    spec = {**spec, 'env': {'NODE_PATH': made[kind]}}
            ready[name] = {**spec, 'command': command}
        except Missing as reason:
            skipped[name] = str(reason)
            say(f'SKIPPED {name}: {reason}')
    return ready, skipped
