// A redis-server, and programs that take locks, for one test.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createConnection, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

/** The built command. */
export const command = process.env.LEASEHOLD;

/** Why the tests cannot run here, or false. */
export const skip = command ? false : 'LEASEHOLD does not name the built command';

/** Far more than anything takes here. */
export const LIMIT = 30_000;

/** A lease that does not end within a test. */
export const LONG = 3_600_000;

const freePort = async () => {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
};

/** Resolves once `look` does not reject. */
export async function eventually(what, look) {
  const end = performance.now() + LIMIT;
  for (;;) {
    try {
      return await look();
    } catch (error) {
      if (performance.now() > end) throw new Error(`never: ${what}`, { cause: error });
      await new Promise((next) => setTimeout(next, 10));
    }
  }
}

/** A redis-server that ends with the test `t`. */
export async function startServer(t) {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-node-'));
  const port = await freePort();
  const process = spawn('redis-server', ['--port', port, '--bind', '127.0.0.1', '--dir', folder, '--save', ''], { stdio: 'ignore' });
  const ended = once(process, 'exit');
  const stop = async () => {
    process.kill('SIGKILL');
    await ended;
  };
  // Clients are closed first: a release waits for the server.
  const clients = [];
  t.after(async () => {
    await Promise.all(clients.map((client) => client.close()));
    await stop();
    rmSync(folder, { recursive: true });
  });
  await eventually('the server listens', () => new Promise((resolve, reject) => {
    const socket = createConnection(port, '127.0.0.1', () => resolve(socket.destroy())).on('error', reject);
  }));
  return { url: `redis://127.0.0.1:${port}`, stop, clients };
}

/** Runs a verb of the command, and returns its output. */
export async function leasehold(url, ...words) {
  const child = spawn(command, words, { env: { ...process.env, LEASEHOLD_URL: url }, stdio: ['ignore', 'pipe', 'inherit'] });
  let text = '';
  child.stdout.on('data', (part) => (text += part));
  await once(child, 'close');
  return text;
}

/** Frees the lock of whoever holds it. */
export async function breakLock(url, name) {
  const { locks: [{ fence }] } = JSON.parse(await leasehold(url, 'inspect', '--json', name));
  await leasehold(url, 'break', '--if-fence', String(fence), name);
}

/** A program of its own that uses the package: it obeys lines, and answers with lines (see `actor.js`). */
export function startActor(t, url) {
  const program = fileURLToPath(new URL('actor.js', import.meta.url));
  const child = spawn(process.execPath, [program], { env: { ...process.env, LEASEHOLD_URL: url }, stdio: ['pipe', 'pipe', 'inherit'] });
  child.stdin.on('error', () => {}); // Its answers show that it has gone.
  const lines = createInterface({ input: child.stdout });
  const answers = [];
  let wake = () => {};
  lines.on('line', (line) => {
    answers.push(JSON.parse(line));
    wake();
  });
  const ended = once(child, 'exit');
  const end = async () => {
    child.kill('SIGKILL');
    await ended;
  };
  t.after(end);
  return {
    pid: child.pid,
    kill: end,
    say: (order) => child.stdin.write(`${JSON.stringify(order)}\n`),
    leave: async () => {
      child.stdin.end();
      await ended;
    },
    /** The next answer about `as`. */
    async answer(as) {
      const limit = AbortSignal.timeout(LIMIT);
      for (;;) {
        const at = answers.findIndex((answer) => answer.as === as);
        if (at >= 0) return answers.splice(at, 1)[0];
        limit.throwIfAborted();
        await new Promise((resolve) => {
          wake = resolve;
          limit.addEventListener('abort', resolve, { once: true });
        });
      }
    },
  };
}
