// What only this package can get wrong: its child, its signals, its types and what it packs.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Client, CommandFailed, LeaseLost, LeaseholdError, Refused, StoreUnavailable } from '../index.js';
import { LONG, breakLock, command, eventually, leasehold, skip, startServer } from './common.js';

const run = promisify(execFile);
const folder = fileURLToPath(new URL('..', import.meta.url));
const index = new URL('../index.js', import.meta.url);

/** A client of a server of its own. */
async function connected(t, options) {
  const server = await startServer(t);
  const client = await Client.connect(server.url, { command, ...options });
  server.clients.push(client);
  return { server, client };
}

/** The process that holds the lock: the child. */
async function holderOf(url, name) {
  const { locks: [{ holder }] } = JSON.parse(await leasehold(url, 'inspect', '--json', name));
  return holder.pid;
}

const lossOf = (lease) => (lease.signal.aborted ? lease.signal.reason : once(lease.signal, 'abort').then(() => lease.signal.reason));

/** An executable file. */
function script(t, text) {
  const place = mkdtempSync(join(tmpdir(), 'leasehold-node-'));
  t.after(() => rmSync(place, { recursive: true }));
  const file = join(place, 'leasehold');
  writeFileSync(file, `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  return file;
}

test('a command that is missing or does not fit is named', async (t) => {
  const failed = async (named, says) => {
    const error = await Client.connect('redis://:S3CR3T@127.0.0.1:1', { command: named }).catch((error) => error);
    assert.ok(error instanceof CommandFailed, error);
    assert.match(error.message, says);
    assert.deepEqual([error.held, error.mayRetry], [false, false]);
    assert.doesNotMatch(error.stack, /S3CR3T/);
  };
  await failed('/nowhere/leasehold', /cannot start \/nowhere\/leasehold: ENOENT; install the command/);
  await failed(script(t, 'exit 64'), /ended \(exit 64\) before it was ready: this package needs a leasehold with `hold --many`/);
  await failed(script(t, 'echo hello; exec cat'), /does not speak leasehold\.hold\/1/);
  await failed(script(t, 'echo \'{"schema":"leasehold.hold/2","event":"ready"}\'; exec cat'), /does not speak leasehold\.hold\/1/);
});

test('the command is found by LEASEHOLD, else in PATH', { skip }, async (t) => {
  const { url } = await startServer(t);
  const program = `import { Client } from '${index}'; const client = await Client.connect(); await client.close();`;
  const connects = (env) => run(process.execPath, ['--input-type=module', '-e', program], { env: { LEASEHOLD_URL: url, ...env } });
  const bin = script(t, `exec ${command} "$@"`);
  await connects({ PATH: join(bin, '..') + ':/bin' });
  await connects({ PATH: '/nowhere', LEASEHOLD: command });
  await assert.rejects(connects({ PATH: '/nowhere' }), /cannot start leasehold: ENOENT/);
});

test('a store that does not answer or refuses tells no secret', { skip }, async (t) => {
  const { url } = await startServer(t);
  for (const [from, kind, mayRetry] of [
    ['redis://user:S3CR3T@127.0.0.1:1', StoreUnavailable, true],
    [url.replace('//', '//user:S3CR3T@'), Refused, false],
    ['nonsense://user:S3CR3T@x', Refused, false],
  ]) {
    const error = await Client.connect(from, { command }).catch((error) => error);
    assert.ok(error instanceof kind, error);
    assert.deepEqual([error.held, error.mayRetry], [false, mayRetry]);
    assert.doesNotMatch(JSON.stringify([error.stack, error]), /S3CR3T/);
  }
});

test('the URL of the program comes before a file of the environment', { skip }, async (t) => {
  const { url } = await startServer(t);
  const program = `import { Client } from '${index}'; const client = await Client.connect('${url}'); await client.close();`;
  await run(process.execPath, ['--input-type=module', '-e', program], { env: { LEASEHOLD: command, LEASEHOLD_URL_FILE: '/nowhere' } });
});

test('without a free file descriptor the program goes on', { skip }, async (t) => {
  const { url } = await startServer(t);
  const program = `
    import { closeSync, openSync } from 'node:fs';
    import { Client } from '${index}';
    const files = [];
    try { for (;;) files.push(openSync('/dev/null')); } catch {}
    const { message, mayRetry } = await Client.connect().catch((error) => error);
    console.log(message.replace(/.*: /, ''), mayRetry);
    files.forEach((file) => closeSync(file));
    const client = await Client.connect();
    await client.close();`;
  const env = { ...process.env, LEASEHOLD: command, LEASEHOLD_URL: url, PROGRAM: program };
  const { stdout } = await run('sh', ['-c', `ulimit -n 64; exec "${process.execPath}" --input-type=module -e "$PROGRAM"`], { env });
  assert.equal(stdout, 'EMFILE true\n');
});

test('the URL is no argument of the child', { skip: skip || (process.platform !== 'linux' && 'reads /proc') }, async (t) => {
  const { server, client } = await connected(t);
  await client.mutex('x').acquire();
  const pid = await holderOf(server.url, 'x');
  const { stdout } = await run('cat', [`/proc/${pid}/cmdline`]);
  assert.match(stdout, /hold\0--many/);
  assert.doesNotMatch(stdout, /redis:/);
});

test('the end of the child is a loss of all leases, and the next request starts another', { skip }, async (t) => {
  const { server, client } = await connected(t, { ttl: 6_000 });
  const leases = [await client.mutex('x').acquire(), await client.mutex('y').acquire()];
  const waits = await Client.connect(server.url, { command, ttl: 6_000 });
  server.clients.push(waits);
  const waiting = waits.mutex('x').acquire();
  process.kill(await holderOf(server.url, 'x'), 'SIGKILL');
  for (const lease of leases) {
    const lost = await lossOf(lease);
    assert.ok(lost instanceof LeaseLost && lost instanceof LeaseholdError);
    assert.match(lost.message, /the lease on "[xy]" was lost: .* ended \(SIGKILL\), and with it all its locks/);
    assert.deepEqual([lost.held, lost.mayRetry], [true, true]);
    await assert.rejects(lease.release(), lost);
    await assert.rejects(lease.check(), lost);
  }
  // By the end of the lease.
  await (await waiting).release();
  const again = await client.mutex('x').acquire();
  assert.ok(again.fence > leases[0].fence);
});

test('a child that is stopped cannot keep a lease past its deadline', { skip }, async (t) => {
  const { server, client } = await connected(t, { ttl: 6_000 });
  const lease = await client.mutex('x').acquire();
  const pid = await holderOf(server.url, 'x');
  process.kill(pid, 'SIGSTOP');
  const lost = await lossOf(lease).finally(() => process.kill(pid, 'SIGCONT'));
  assert.match(lost.message, /did not answer until the deadline/);
});

/** A lease of a child that answers nothing, and whose clock is `tick`. It begins at 0 and lasts for 1,000 ms. */
async function leaseOfSilence(t) {
  const child = script(t, `
    echo '{"schema":"leasehold.hold/1","event":"ready"}'; read line
    echo '{"schema":"leasehold.hold/1","id":1,"event":"acquired","lock":"x","waited_ms":0,"valid_for_ms":1000}'; exec cat >/dev/null`);
  const client = await Client.connect(undefined, { command: child });
  t.after(() => client.close());
  let time = 0;
  t.mock.method(performance, 'now', () => time);
  t.mock.timers.enable({ apis: ['setTimeout'] });
  t.after(() => t.mock.reset());
  const lease = await client.mutex('x').acquire();
  /** Time passes. In a pause, the program looks at no timer before its end. */
  const tick = async (to, { isPaused = false } = {}) => {
    while (!isPaused && time < to) {
      time += 1;
      t.mock.timers.tick(1);
      for (let turn = 0; turn < 3; turn += 1) await new Promise((next) => setImmediate(next));
    }
    time = to;
  };
  return { lease, tick };
}

test('a loss is told no later than at the deadline of the lease', async (t) => {
  const { lease, tick } = await leaseOfSilence(t);
  await tick(999);
  assert.ok(!lease.signal.aborted);
  await tick(1_001);
  assert.match(lease.signal.reason.message, /did not answer until the deadline/);
});

test('after a pause the child has time to answer a check', async (t) => {
  const { lease, tick } = await leaseOfSilence(t);
  await tick(5_000, { isPaused: true });
  const checked = assert.rejects(lease.check(), LeaseLost);
  await tick(6_999);
  assert.ok(!lease.signal.aborted);
  await tick(7_001);
  await checked;
});

test('a release that is not answered ends', async (t) => {
  const { lease, tick } = await leaseOfSilence(t);
  const released = assert.rejects(lease.release(), LeaseLost);
  await tick(4_999);
  assert.ok(!lease.signal.aborted);
  await tick(5_001);
  await released;
});

test('a program that computes for longer than the lease keeps it', { skip }, async (t) => {
  const { server, client } = await connected(t, { ttl: 6_000 });
  const lease = await client.mutex('x').acquire();
  const pid = await holderOf(server.url, 'x');
  const end = performance.now() + 7_000;
  while (performance.now() < end); // No event is heard meanwhile.
  // The answer comes later than the deadline that this program knows.
  process.kill(pid, 'SIGSTOP');
  await new Promise((next) => setTimeout(next, 300));
  process.kill(pid, 'SIGCONT');
  assert.ok((await lease.check()).validFor > 0);
  assert.ok(!lease.signal.aborted);
  const other = await Client.connect(server.url, { command });
  server.clients.push(other);
  assert.equal(await other.mutex('x').tryAcquire(), null);
  await lease.release();
});

test('Ctrl-C ends no lease of a program that handles it', { skip }, async (t) => {
  const server = await startServer(t);
  const program = `
    import { Client } from '${index}';
    process.on('SIGINT', () => lease.check().then(({ validFor }) => console.log(validFor > 0 ? 'valid' : 'over')));
    const lease = await (await Client.connect()).mutex('x').acquire();
    console.log('held');`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    detached: true, env: { ...process.env, LEASEHOLD_URL: server.url }, stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.after(() => child.kill('SIGKILL'));
  assert.equal(String((await once(child.stdout, 'data'))[0]), 'held\n');
  process.kill(-child.pid, 'SIGINT');
  assert.equal(String((await once(child.stdout, 'data'))[0]), 'valid\n');
});

test('an idle client keeps no program alive, a lease does', { skip }, async (t) => {
  const { url } = await startServer(t);
  const program = (rest) => `import { Client } from '${index}';
    const lease = await (await Client.connect()).mutex('x').acquire();
    ${rest}`;
  const env = { ...process.env, LEASEHOLD_URL: url };
  await run(process.execPath, ['--input-type=module', '-e', program('await lease.release();')], { env });
  const holds = spawn(process.execPath, ['--input-type=module', '-e', program("lease.signal.onabort = () => console.log('lost');")], { env });
  t.after(() => holds.kill('SIGKILL'));
  const pid = await eventually('it holds', () => holderOf(url, 'x'));
  process.kill(pid, 'SIGKILL');
  assert.equal(String((await once(holds.stdout, 'data'))[0]), 'lost\n');
});

test('use releases after the work, and tells a loss', { skip }, async (t) => {
  const { server, client } = await connected(t, { ttl: 6_000 });
  const lock = client.mutex('x');
  assert.equal(await lock.use(async ({ fence }) => fence > 0), true);
  await assert.rejects(lock.use(() => { throw new RangeError('mine'); }), RangeError);
  const work = async ({ signal }) => {
    await breakLock(server.url, 'x');
    await once(signal, 'abort');
    assert.ok(signal.reason instanceof LeaseLost);
  };
  await assert.rejects(lock.use(work), LeaseLost);
  const lease = await lock.acquire();
  await lease[Symbol.asyncDispose]();
  await lease.release(); // Once more is no error.
  await (await lock.tryAcquire()).release();
});

test('await using releases at the end of the block', { skip: skip || (!hasUsing() && 'this node has no `await using`') }, async (t) => {
  const { client } = await connected(t);
  const block = new Function('client', 'return (async () => { await using lease = await client.mutex("x").acquire(); return lease.fence; })()');
  assert.ok(await block(client) > 0);
  assert.notEqual(await client.mutex('x').tryAcquire(), null);
});

function hasUsing() {
  try {
    return Boolean(new Function('return (async () => { await using x = null; })'));
  } catch {
    return false;
  }
}

test('tasks on one lock hold it one after the other', { skip }, async (t) => {
  const { client } = await connected(t, { ttl: LONG });
  let inside = 0;
  const fences = [];
  await Promise.all(Array.from({ length: 64 }, () => client.mutex('x').use(async ({ fence }) => {
    assert.equal(++inside, 1);
    fences.push(fence);
    await new Promise((next) => setImmediate(next));
    inside -= 1;
  })));
  assert.equal(fences.length, 64);
  assert.deepEqual(fences, [...new Set(fences)].sort((a, b) => a - b));
});

test('a cancelled request leaves nothing, whenever it is cancelled', { skip }, async (t) => {
  const { client } = await connected(t);
  await assert.rejects(client.mutex('x').acquire({ signal: AbortSignal.abort(new Error('before')) }), /before/);
  for (let turns = 0; turns < 40; turns += 1) {
    const cancel = new AbortController();
    const asked = client.mutex('x').acquire({ signal: cancel.signal });
    for (let turn = 0; turn < turns; turn += 1) await new Promise((next) => setImmediate(next));
    cancel.abort(new Error('during'));
    await asked.then((lease) => lease.release(), (error) => assert.equal(error.message, 'during'));
  }
  await (await client.mutex('x').acquire()).release();
});

test('a request is cancelled while its child starts', async (t) => {
  // The first child ends with the first request. The next one is never ready.
  const command = script(t, `
    [ ! -e "$0.started" ] || exec cat >/dev/null
    : >"$0.started"; echo '{"schema":"leasehold.hold/1","event":"ready"}'; read line`);
  const client = await Client.connect(undefined, { command });
  await assert.rejects(client.mutex('x').acquire(), CommandFailed);
  const cancel = new AbortController();
  const asked = client.mutex('x').acquire({ signal: cancel.signal });
  setImmediate(() => cancel.abort(new Error('during')));
  await assert.rejects(asked, /during/);
  await client.close();
});

test('an error of onWait is that of its request', { skip }, async (t) => {
  const { client } = await connected(t, { ttl: LONG });
  const lease = await client.mutex('x').acquire();
  const onWait = () => { throw new RangeError('mine'); };
  await assert.rejects(client.mutex('x').acquire({ onWait }), RangeError);
  await lease.release();
  await (await client.mutex('x').acquire()).release();
});

test('close ends a wait', { skip }, async (t) => {
  const { client } = await connected(t, { ttl: LONG });
  await client.mutex('x').acquire();
  const waits = new Promise((onWait) => assert.rejects(client.mutex('x').acquire({ onWait }), { message: 'the client was closed', mayRetry: false }).then(onWait));
  await client.close();
  await waits;
});

test('an argument that no command could read is refused here', { skip }, async (t) => {
  const { server, client } = await connected(t);
  assert.throws(() => client.mutex(7), TypeError);
  assert.throws(() => client.mutex('x'.repeat(70_000)), Refused);
  assert.throws(() => client.mutex('\ud800'), Refused);
  assert.throws(() => client.mutex('x', { note: '\udc00' }), Refused);
  assert.throws(() => client.all('xy'), TypeError);
  assert.throws(() => client.mutex('x', { ttl: -1 }), RangeError);
  await assert.rejects(client.mutex('x').acquire({ wait: 0 }), RangeError);
  await assert.rejects(client.semaphore('x', 0).acquire(), Refused);
  await assert.rejects(Client.connect(server.url, { command, ttl: 1 }), Refused);
  const longest = Array.from({ length: 32 }, (_, number) => String(number).padEnd(512, '"'));
  await (await client.all(longest).acquire()).release();
  await client.close();
  await assert.rejects(client.mutex('x').acquire(), /the client is closed/);
});

test('the package has its sources and types, and nothing else', async () => {
  const { stdout } = await run('npm', ['pack', '--dry-run', '--json', '--offline'], { cwd: folder });
  const [{ name, version, files }] = [JSON.parse(stdout)].flatMap((packed) => (Array.isArray(packed) ? packed : Object.values(packed)));
  assert.equal(name, 'leasehold-redis');
  // A release has one version.
  assert.match(readFileSync(join(folder, '../Cargo.toml'), 'utf8'), new RegExp(`^version = "${version}"$`, 'm'));
  assert.deepEqual(files.map(({ path }) => path).sort(),
    ['LICENSE-APACHE', 'LICENSE-MIT', 'README.md', 'child.js', 'errors.js', 'index.d.ts', 'index.js', 'package.json']);
});

const tsc = [process.env.TSC, join(folder, '../bench/.cache/node/node_modules/.bin/tsc')].find((file) => file && existsSync(file));

test('the types are those of the package', { skip: tsc ? false : 'no TypeScript in bench/.cache (scripts/foreign)' }, async () => {
  await run(tsc, ['--strict', '--noEmit', '--module', 'nodenext', '--target', 'es2022', join(folder, 'test/types.ts')], { cwd: folder })
    .catch(({ stdout }) => assert.fail(stdout));
});

test('each export has a type', async () => {
  const types = readFileSync(join(folder, 'index.d.ts'), 'utf8');
  const declared = [...types.matchAll(/^export class (\w+)/gm)].map(([, name]) => name).sort();
  assert.deepEqual(Object.keys(await import('../index.js')).sort(), declared);
});
