"""Servers of the variants: TLS, each write on the disk before its answer, a quorum, or a cluster."""
import os
import subprocess
import time

from .quorum import Five, FourOfFive, Several
from .redis import NotStarted, Server, free_port

# A private configuration, because the openssl.cnf of systems differ.
CONFIG = """\
[req]
distinguished_name = name
prompt = no
[name]
CN = leasehold-bench
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[leaf]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = IP:127.0.0.1, DNS:localhost
"""
NEW_KEY = '-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -config openssl.cnf'
STEPS = [
    f'req -x509 {NEW_KEY} -keyout ca.key -out ca.crt -days 30 -subj /CN=bench-ca -extensions ca',
    f'req -new {NEW_KEY} -keyout server.key -out server.csr -subj /CN=localhost',
    'x509 -req -in server.csr -CA ca.crt -CAkey ca.key -set_serial 2 -days 30 -extfile openssl.cnf -extensions leaf -out server.crt',
]


def make_certificates(folder):
    """A CA, and a certificate for 127.0.0.1 that it signed: ca.crt, server.crt and server.key."""
    with open(os.path.join(folder, 'openssl.cnf'), 'w') as config:
        config.write(CONFIG)
    for step in STEPS:
        try:
            done = subprocess.run(['openssl', *step.split()], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotStarted(f'the openssl command does not work: {error}') from None
        if done.returncode:
            raise NotStarted(f'openssl {step.split()[0]} failed: ' + ' | '.join(done.stderr.strip().splitlines()[-2:]))


class TlsServer(Server):
    """A server that drivers reach over TLS, and the harness on a plain port."""

    def _prepare(self):
        make_certificates(self.folder)
        self.env = {'SSL_CERT_FILE': os.path.join(self.folder, 'ca.crt')}

    def _options(self):
        self.tls_port = free_port()
        return [*super()._options(), '--tls-port', str(self.tls_port), '--tls-auth-clients', 'no', '--tls-ca-cert-file', 'ca.crt',
                '--tls-cert-file', 'server.crt', '--tls-key-file', 'server.key']

    def arguments(self):
        return [*super().arguments(), f'url=rediss://127.0.0.1:{self.tls_port}/']


class DiskServer(Server):
    """A server that answers a write once the disk has it."""

    def _prepare(self):
        kind = subprocess.run(['stat', '-f', '-c', '%T', self.folder], capture_output=True, text=True).stdout.strip()
        if kind in ('tmpfs', 'ramfs'):
            raise NotStarted('the temporary folder is in memory: name one on a disk in TMPDIR')

    def _options(self):
        # No rewrite of the file, since it would disturb some runs only.
        return ['--appendonly', 'yes', '--appendfsync', 'always', '--auto-aof-rewrite-percentage', '0']


def wait_until(holds, otherwise, limit=30):
    """Waits for servers that agree with each other."""
    deadline = time.monotonic() + limit
    while not holds():
        if time.monotonic() > deadline:
            raise NotStarted(otherwise)
        time.sleep(0.05)


class ClusterNode(Server):
    """A server in cluster mode. It has no slots yet."""

    def _options(self):
        self.bus = free_port()
        return [*super()._options(), '--cluster-enabled', 'yes', '--cluster-port', str(self.bus), '--cluster-node-timeout', '2000']


class Cluster(Several):
    """A cluster. The first of its nodes are the primaries; the others are replicas, one of each primary."""

    kind = ClusterNode
    replicas = 0

    def _form(self):
        first, primaries = self.servers[0], self.nodes - self.replicas
        for at, node in enumerate(self.servers):
            node.command('CLUSTER', 'SET-CONFIG-EPOCH', at + 1)
            if at < primaries:
                node.command('CLUSTER', 'ADDSLOTSRANGE', 16384 * at // primaries, 16384 * (at + 1) // primaries - 1)
            if node is not first:
                first.command('CLUSTER', 'MEET', '127.0.0.1', node.port, node.bus)
        for node in self.servers:
            wait_until(lambda: (said := node.command('CLUSTER', 'INFO')).count('cluster_state:ok') == 1 and f'cluster_size:{primaries}\r' in said
                       and f'cluster_known_nodes:{self.nodes}\r' in said, 'the nodes form no cluster')
        for node, primary in zip(self.servers[primaries:], self.servers):
            node.command('CLUSTER', 'REPLICATE', primary.command('CLUSTER', 'MYID'))
        for node in self.servers[primaries:]:
            wait_until(lambda: node.command.info('replication').get('master_link_status') == 'up', 'a replica has no primary')

    def arguments(self):
        return ['url=redis+cluster://' + ','.join(f'127.0.0.1:{server.port}' for server in self.servers)]


class OneNode(Cluster):
    nodes = 1


class ThreeNodes(Cluster):
    nodes = 3


class SixNodes(Cluster):
    nodes, replicas = 6, 3


class Sentinel(Server):
    """A sentinel that watches the server at `port`."""

    def __init__(self, port):
        self.watched = port
        super().__init__()

    def _prepare(self):
        self.config = [os.path.join(self.folder, 'sentinel.conf')]
        with open(self.config[0], 'w') as config:
            config.write(f'sentinel monitor main 127.0.0.1 {self.watched} 2\nsentinel down-after-milliseconds main 500\n'
                         'sentinel failover-timeout main 2000\n')

    def _options(self):
        return ['--sentinel']


class Watched(Several):
    """A primary, a replica and three sentinels. `servers` are the first two."""

    nodes = 2

    def __init__(self):
        self.sentinels = []
        super().__init__()

    def _form(self):
        primary, replica = self.servers
        replica.command('REPLICAOF', '127.0.0.1', primary.port)
        wait_until(lambda: primary.command.info('replication').get('slave0', '').count('state=online'), 'the replica has no primary')
        # Sentinels ask the primary for its replicas when they start.
        self.sentinels += [Sentinel(primary.port) for _ in range(3)]
        wait_until(lambda: all(self._knows_all(sentinel) for sentinel in self.sentinels), 'the sentinels do not know each other')

    @staticmethod
    def _knows_all(sentinel):
        return len(sentinel.command('SENTINEL', 'SENTINELS', 'main')) == 2 and len(sentinel.command('SENTINEL', 'REPLICAS', 'main')) == 1

    def arguments(self):
        return ['url=redis+sentinel://' + ','.join(f'127.0.0.1:{sentinel.port}' for sentinel in self.sentinels) + '/main']

    def close(self):
        super().close()
        for sentinel in self.sentinels:
            sentinel.close()


BY_CONDITION = {'tls': TlsServer, 'disk': DiskServer, 'quorum': Five, 'silent': FourOfFive, 'node': OneNode, 'cluster': ThreeNodes}
