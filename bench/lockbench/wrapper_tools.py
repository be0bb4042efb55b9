"""The compared lock wrappers, and their private servers on free ports."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from lockbench import redis
from lockbench.peers import Missing, need

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TTL = 2  # seconds, if the tool has the option


def says(*words, env=None):
    """The output of a program; empty if it fails."""
    try:
        return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, env=env).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ''


def ask(url, method='GET'):
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=5) as answer:
        return answer.read().decode()


class Server:
    """A server in a temporary folder. It is ready when `ready` returns something true."""

    def __init__(self, name, command, ready):
        self.folder = tempfile.mkdtemp(prefix='leasehold-wrappers-')
        with open(os.path.join(self.folder, 'log'), 'w') as log:
            self.process = subprocess.Popen([word.replace('FOLDER', self.folder) for word in command], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if ready():
                    return
            except (OSError, urllib.error.URLError, ValueError):
                pass
            time.sleep(0.05)
        with open(os.path.join(self.folder, 'log')) as log:
            said = log.read()[-300:].replace('\n', ' ')
        self.close()
        raise Missing(f'{name} does not start: {said}')

    @property
    def pid(self):
        return self.process.pid

    def close(self):
        redis.end(self.process)
        shutil.rmtree(self.folder, ignore_errors=True)


class Tool:
    """A wrapper. `command` is the typed command; the other fields are None if the tool lacks that option."""
    server = None
    env = None

    def close(self):
        if self.server:
            self.server.close()


class Flock(Tool):
    name = 'flock'
    how = 'flock FILE CMD'

    def __init__(self, _given):
        need('flock', 'Debian: util-linux')
        self.version = says('flock', '--version').rsplit(' ', 1)[-1]
        self.folder = tempfile.mkdtemp(prefix='leasehold-wrappers-')

    def file(self, lock):
        return os.path.join(self.folder, lock)

    def command(self, lock, words, once=False, wait=None):
        return ['flock', *['-n'] * once, *(['-w', str(wait)] if wait else []), self.file(lock), *words]

    def unreachable(self, lock, words):
        return ['flock', f'/nonexistent/{lock}', *words]

    def lose(self, lock):
        os.unlink(self.file(lock))

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)


class Consul(Tool):
    name = 'consul lock'
    how = 'consul lock PREFIX CMD'
    options = ()

    def __init__(self, _given):
        need('consul', 'Debian has it until 11; https://developer.hashicorp.com/consul/install')
        self.version = says('consul', 'version').splitlines()[0].split(' ')[-1].lstrip('v')
        http, server, lan, wan = (redis.free_port() for _ in range(4))
        self.url = f'http://127.0.0.1:{http}'
        self.server = Server('consul', ['consul', 'agent', '-dev', '-bind', '127.0.0.1', '-http-port', str(http), '-dns-port', '-1',
                                        '-grpc-port', '-1', '-server-port', str(server), '-serf-lan-port', str(lan),
                                        '-serf-wan-port', str(wan)],
                             lambda: len(ask(self.url + '/v1/status/leader')) > 4)
        self.env = {'CONSUL_HTTP_ADDR': self.url}

    def command(self, lock, words, once=False, wait=None):
        if once:
            return None
        return ['consul', 'lock', *self.options, *([f'-timeout={wait}s'] if wait else []), lock, *words]

    def unreachable(self, lock, words):
        return ['consul', 'lock', *self.options, f'-http-addr=127.0.0.1:{redis.free_port()}', lock, *words]

    def lose(self, lock):
        session = json.loads(ask(f'{self.url}/v1/kv/{lock}/.lock'))[0]['Session']
        ask(f'{self.url}/v1/session/destroy/{session}', 'PUT')


class ConsulStrict(Consul):
    name = 'consul lock, its options'
    how = 'consul lock -shell=false -child-exit-code -pass-stdin PREFIX CMD'
    options = ('-shell=false', '-child-exit-code', '-pass-stdin')


class Etcdctl(Tool):
    name = 'etcdctl lock'
    how = f'etcdctl lock --ttl={TTL} NAME -- CMD'

    def __init__(self, _given):
        need('etcdctl', 'Debian: etcd-client')
        need('etcd', 'Debian: etcd-server')
        found = re.search(r'etcdctl version: (\S+)', says('etcdctl', 'version', env={**os.environ, 'ETCDCTL_API': '3'}))
        self.version = found[1] if found else '?'
        client, peer = (f'http://127.0.0.1:{redis.free_port()}' for _ in range(2))
        self.url = client
        self.server = Server('etcd', ['etcd', '--data-dir', 'FOLDER/data', '--listen-client-urls', client, '--advertise-client-urls', client,
                                      '--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer,
                                      '--initial-cluster', f'default={peer}'],
                             lambda: 'true' in ask(client + '/health'))
        self.env = {'ETCDCTL_API': '3', 'ETCDCTL_ENDPOINTS': client}

    def command(self, lock, words, once=False, wait=None):
        if once:
            return None
        return ['etcdctl', *([f'--command-timeout={wait}s'] if wait else []), 'lock', f'--ttl={TTL}', lock, '--', *words]

    def unreachable(self, lock, words):
        return ['etcdctl', f'--endpoints=http://127.0.0.1:{redis.free_port()}', 'lock', lock, '--', *words]

    def lose(self, lock):
        env = {**os.environ, **self.env}
        keys = json.loads(says('etcdctl', 'get', '--prefix', lock, '-w', 'json', env=env))['kvs']
        says('etcdctl', 'lease', 'revoke', f'{keys[0]["lease"]:x}', env=env)


class Leasehold(Tool):
    name = 'leasehold run'
    how = f'leasehold run --ttl {TTL}s NAME CMD'

    def __init__(self, given):
        need('redis-server', 'Debian: redis-server')
        self.program = leasehold(given)
        self.version = says(self.program, '--version').rsplit(' ', 1)[-1]
        self.server = redis.Server()
        self.env = {'LEASEHOLD_URL': f'redis://127.0.0.1:{self.server.port}/'}

    def command(self, lock, words, once=False, wait=None):
        return [self.program, 'run', '--ttl', f'{TTL}s', *['--try'] * once, *(['--wait', f'{wait}s'] if wait else []), lock, *words]

    def unreachable(self, lock, words):
        return [self.program, 'run', '--url', f'redis://127.0.0.1:{redis.free_port()}/', lock, *words]

    def lose(self, lock):
        self.server.command('DEL', lock)


ALL = {'flock': Flock, 'consul': Consul, 'consul-strict': ConsulStrict, 'etcdctl': Etcdctl, 'leasehold': Leasehold}


def leasehold(given):
    """Path of the command: the given one, or the release build, built if missing."""
    if given:
        if not os.access(given, os.X_OK):
            raise Missing(f'{given} is no program')
        return os.path.abspath(given)
    built = os.path.join(os.environ.get('CARGO_TARGET_DIR') or os.path.join(ROOT, 'target'), 'release', 'leasehold')
    if not os.path.exists(built):
        need('cargo', 'https://rustup.rs')
        if subprocess.run(['cargo', 'build', '--release', '--locked', '-p', 'leasehold-cli'], cwd=ROOT, stdin=subprocess.DEVNULL).returncode:
            raise Missing('`cargo build --release -p leasehold-cli` failed, see above')
    return built


def child(folder):
    """Compiles `child.c` into `folder`."""
    need('cc', 'a C compiler')
    program = os.path.join(folder, 'child')
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'child.c')
    subprocess.run(['cc', '-O2', '-static', '-o', program, source], check=True)
    return program
