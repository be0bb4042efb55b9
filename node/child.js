// The process `leasehold hold --many`, which holds all locks of a client, and the lines to and from it.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { CommandFailed, errorOf } from './errors.js';

/** How long the releases at the end may take. The command gives up earlier, unless it is stopped. */
const CLOSE = 10_000;

const SCHEMA = 'leasehold.hold/1';

/** A running command. It ends when its stdin closes, so also with this process, however that ends. */
export class Child {
  #process;
  #listeners = new Map();
  #next = 1;
  #isReady = false;
  #failure = null;

  constructor({ command, url, ttl, onEnd }) {
    const program = command ?? (process.env.LEASEHOLD || 'leasehold');
    const options = ttl === undefined ? [] : ['--ttl', `${ttl}ms`];
    // The URL may have a password, and every user of the host sees arguments.
    const env = url === undefined ? process.env : { ...process.env, LEASEHOLD_URL: url };
    // In a group of its own: Ctrl-C is for this program, which decides when its locks end.
    this.#process = spawn(program, ['hold', '--many', ...options], { stdio: ['pipe', 'pipe', 'inherit'], env, detached: true });
    this.#process.stdin.on('error', () => {}); // 'close' reports the end.
    this.ready = new Promise((resolve, reject) => {
      this.#process.on('error', (error) => {
        this.#failure = new CommandFailed(
          `cannot start ${program}: ${error.code ?? error.message}; install the command, or name it by the option \`command\` or by LEASEHOLD`);
        reject(this.#failure);
      });
      createInterface({ input: this.#process.stdout }).on('line', (line) => this.#hear(line, program, resolve));
      this.ended = new Promise((end) => this.#process.on('close', (code, signal) => {
        const how = signal ?? `exit ${code}`;
        const early = `${program} ended (${how}) before it was ready: this package needs a leasehold with \`hold --many\``;
        const late = `${program} ended (${how}), and with it all its locks`;
        this.#failure ??= new CommandFailed(this.#isReady ? late : early, { mayRetry: this.#isReady, code });
        reject(this.#failure);
        onEnd();
        for (const listener of this.#listeners.values()) listener.failed(this.#failure);
        this.#listeners.clear();
        end();
      }));
    });
    this.ready.catch(() => {}); // Each caller of `ready` has the error.
    this.#hold();
  }

  /** Sends `{do: 'acquire', id, ...request}`. The listener has `heard(event)`, and `failed(error)` for the end of the process. */
  open(request, listener) {
    const id = this.#next++;
    this.#listeners.set(id, listener);
    this.#hold();
    this.say('acquire', id, request);
    return id;
  }

  say(what, id, fields) {
    this.#process.stdin.write(`${JSON.stringify({ do: what, id, ...fields })}\n`);
  }

  /** Releases all locks, and waits for the end. */
  async close() {
    this.#process.stdin.end();
    // It also keeps the program alive until the end.
    const kill = setTimeout(() => this.#process.kill('SIGKILL'), CLOSE);
    await this.ended;
    clearTimeout(kill);
  }

  /** The program stays alive for locks that it has or wants, not for an idle child. */
  #hold() {
    const isIdle = this.#isReady && this.#listeners.size === 0;
    const how = isIdle ? 'unref' : 'ref';
    for (const one of [this.#process, this.#process.stdin, this.#process.stdout]) one?.[how]?.();
  }

  #hear(line, program, resolve) {
    let event;
    try {
      event = JSON.parse(line);
    } catch {
      event = {};
    }
    if (event.schema !== SCHEMA) {
      this.#failure ??= new CommandFailed(`${program} does not speak ${SCHEMA}: it is not a leasehold that fits this package`);
      this.#process.kill();
      return;
    }
    if (event.event === 'ready') {
      this.#isReady = true;
      resolve();
    } else if (event.id === undefined) {
      // Of the process itself. Its end follows.
      if (event.event === 'error' && event.code !== null) this.#failure ??= errorOf(event);
      return;
    } else {
      this.#tell(event);
    }
    this.#hold();
  }

  #tell(event) {
    const listener = this.#listeners.get(event.id);
    const isLast = ['released', 'lost', 'busy', 'timeout', 'cancelled', 'error'].includes(event.event);
    if (isLast) this.#listeners.delete(event.id);
    listener?.heard(event);
  }
}
