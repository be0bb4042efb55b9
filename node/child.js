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
    // The URL may have a password, and every user of the host sees arguments.
    const env = { ...process.env };
    if (url !== undefined) Object.assign(env, { LEASEHOLD_URL: url, LEASEHOLD_URL_FILE: undefined });
    if (ttl !== undefined) env.LEASEHOLD_TTL = `${ttl}ms`;
    // In a group of its own: Ctrl-C is for this program, which decides when its locks end.
    this.#process = spawn(program, ['hold', '--many'], { stdio: ['pipe', 'pipe', 'inherit'], env, detached: true });
    this.#process.stdin?.on('error', () => {}); // 'close' reports the end.
    this.ended = new Promise((end) => {
      this.#process.on('error', (error) => {
        if (this.#process.pid !== undefined) return;
        const isMissing = ['ENOENT', 'EACCES'].includes(error.code);
        const advice = isMissing ? '; install the command, or name it by the option `command` or by LEASEHOLD' : '';
        this.#failure ??= new CommandFailed(`cannot start ${program}: ${error.code ?? error.message}${advice}`, { mayRetry: !isMissing });
        end(); // Without a free file descriptor there are no pipes, and 'close' does not follow.
      });
      this.#process.on('close', (code, signal) => {
        const how = signal ?? `exit ${code}`;
        const early = `${program} ended (${how}) before it was ready: this package needs a leasehold with \`hold --many\``;
        const late = `${program} ended (${how}), and with it all its locks`;
        this.#failure ??= new CommandFailed(this.#isReady ? late : early, { mayRetry: this.#isReady, code });
        end();
      });
    }).then(() => {
      onEnd();
      for (const listener of this.#listeners.values()) listener.failed(this.#failure);
      this.#listeners.clear();
    });
    const { stdout: input } = this.#process;
    const started = new Promise((resolve) => {
      if (input) createInterface({ input }).on('line', (line) => this.#hear(line, program, resolve));
    });
    this.ready = Promise.race([started, this.ended.then(() => Promise.reject(this.#failure))]);
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
    this.#process.stdin?.write(`${JSON.stringify({ do: what, id, ...fields })}\n`);
  }

  /** Releases all locks, and waits for the end. */
  async close() {
    this.#failure ??= new CommandFailed('the client was closed');
    this.#process.stdin?.end();
    // It also keeps the program alive until the end.
    const kill = setTimeout(() => this.#process.kill('SIGKILL'), CLOSE);
    await this.ended;
    clearTimeout(kill);
  }

  /** The program stays alive for locks that it has or wants, not for an idle child. */
  #hold() {
    const isIdle = this.#isReady && this.#listeners.size === 0;
    const how = isIdle ? 'unref' : 'ref';
    // A closed pipe would keep the call for a connection that never comes.
    for (const one of [this.#process, this.#process.stdin, this.#process.stdout]) if (!one?.destroyed) one?.[how]?.();
  }

  #hear(line, program, resolve) {
    let event;
    try {
      event = JSON.parse(line);
    } catch {
      event = {};
    }
    if (event?.schema !== SCHEMA) {
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
    if (event.event === 'cancelled' && this.#failure) listener?.failed(this.#failure);
    else listener?.heard(event);
  }
}
