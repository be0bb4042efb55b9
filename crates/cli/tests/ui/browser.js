// A browser that a test drives: chromium, headless, over the pipe of its DevTools protocol. Nothing else is needed.
'use strict';

const { spawn } = require('node:child_process');
const { mkdtempSync, rmSync } = require('node:fs');
const { tmpdir } = require('node:os');
const { join } = require('node:path');

const PATIENCE = 20_000;

// Fails with what was awaited, if it does not come.
async function within(what, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: no answer within ${PATIENCE} ms`)), PATIENCE);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

class Browser {
  static async start(binary) {
    const browser = new Browser();
    browser.home = mkdtempSync(join(tmpdir(), 'leasehold-ui-'));
    const words = ['--headless=new', '--no-sandbox', '--disable-gpu', '--hide-scrollbars', '--no-first-run', '--disable-dev-shm-usage',
      '--remote-debugging-pipe', `--user-data-dir=${browser.home}`, 'about:blank'];
    // A process group of its own, so that all of its processes end together.
    browser.child = spawn(binary, words, { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'], detached: true });
    browser.open = new Map();
    browser.listeners = new Set();
    browser.next = 1;
    let text = '';
    browser.child.stdio[4].setEncoding('utf8').on('data', (more) => {
      text += more;
      let end;
      while ((end = text.indexOf('\0')) >= 0) {
        browser.hear(JSON.parse(text.slice(0, end)));
        text = text.slice(end + 1);
      }
    });
    return browser;
  }

  hear(message) {
    const call = this.open.get(message.id);
    if (call) {
      this.open.delete(message.id);
      message.error ? call.reject(new Error(message.error.message)) : call.resolve(message.result);
    } else {
      for (const listener of this.listeners) listener(message);
    }
  }

  send(method, params = {}, sessionId = undefined) {
    const id = this.next++;
    const told = new Promise((resolve, reject) => this.open.set(id, { resolve, reject }));
    this.child.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    return within(method, told);
  }

  async page(url, { width = 1200, height = 800, dark = false } = {}) {
    const { targetId } = await this.send('Target.createTarget', { url: 'about:blank' });
    const { sessionId } = await this.send('Target.attachToTarget', { targetId, flatten: true });
    const page = new Page(this, sessionId, targetId);
    await page.send('Page.enable');
    await page.send('Runtime.enable');
    await page.send('Log.enable');
    await page.size(width, height);
    await page.send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: dark ? 'dark' : 'light' }] });
    await page.go(url);
    return page;
  }

  async end() {
    const ended = new Promise((resolve) => this.child.once('exit', resolve));
    process.kill(-this.child.pid, 'SIGKILL');
    await ended;
    rmSync(this.home, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 });
  }
}

class Page {
  constructor(browser, sessionId, targetId) {
    Object.assign(this, { browser, sessionId, targetId, faults: [] });
    browser.listeners.add((message) => {
      if (message.sessionId !== sessionId) return;
      if (message.method === 'Runtime.exceptionThrown') this.faults.push(message.params.exceptionDetails.exception?.description ?? 'an exception');
      if (message.method === 'Log.entryAdded' && message.params.entry.source === 'security') this.faults.push(message.params.entry.text);
    });
  }

  send(method, params) {
    return this.browser.send(method, params, this.sessionId);
  }

  size(width, height) {
    return this.send('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: width < 500 });
  }

  async go(url) {
    const loaded = new Promise((resolve) => {
      this.browser.listeners.add((message) => {
        if (message.sessionId === this.sessionId && message.method === 'Page.loadEventFired') resolve();
      });
    });
    await this.send('Page.navigate', { url });
    await within('the page has loaded', loaded);
  }

  async run(expression) {
    const { result, exceptionDetails } = await this.send('Runtime.evaluate', { expression, returnByValue: true, awaitPromise: true });
    if (exceptionDetails) throw new Error(`${expression}: ${exceptionDetails.exception?.description ?? exceptionDetails.text}`);
    return result.value;
  }

  // Asks until the expression is true. Returns how many milliseconds that took.
  async until(what, expression) {
    const begun = Date.now();
    for (;;) {
      if (await this.run(expression)) return Date.now() - begun;
      if (Date.now() - begun > PATIENCE) throw new Error(`${what}: not within ${PATIENCE} ms: ${await this.run('document.body.innerText')}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  async press(...keys) {
    for (const key of keys) {
      const text = key === 'Enter' ? '\r' : [...key].length === 1 ? key : undefined;
      const code = { Enter: 13, Tab: 9, Escape: 27, ArrowDown: 40, ArrowUp: 38, End: 35, Home: 36 }[key];
      const params = { key, code: key, text, windowsVirtualKeyCode: code };
      await this.send('Input.dispatchKeyEvent', { type: text ? 'keyDown' : 'rawKeyDown', ...params });
      await this.send('Input.dispatchKeyEvent', { type: 'keyUp', key, code: key, windowsVirtualKeyCode: code });
    }
  }

  type(text) {
    return this.send('Input.insertText', { text });
  }

  async shot() {
    const { data } = await this.send('Page.captureScreenshot', { format: 'png' });
    return Buffer.from(data, 'base64');
  }
}

module.exports = { Browser };
