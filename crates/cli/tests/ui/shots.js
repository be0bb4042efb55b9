// Makes the pictures of docs/images: node shots.js FOLDER, with CHROMIUM and LEASEHOLD in the environment. It starts a server of its own
// (`leasehold dev`) with locks such as a fleet has.
'use strict';

const { spawn, execFileSync } = require('node:child_process');
const { mkdirSync, writeFileSync } = require('node:fs');
const { join } = require('node:path');
const { once } = require('node:events');
const { Browser } = require('./browser.js');

const { CHROMIUM = 'chromium', LEASEHOLD = 'leasehold' } = process.env;
const folder = process.argv[2];
const children = [];

function start(...words) {
  const child = spawn(LEASEHOLD, words, { stdio: ['pipe', 'pipe', 'ignore'] });
  children.push(child);
  child.stdout.setEncoding('utf8');
  return child;
}

const line = async (child) => (await once(child.stdout, 'data'))[0].trim();
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function main() {
  const port = 17788;
  const dev = start('dev', '--port', String(port), '--', 'sleep', '600');
  const store = `redis://127.0.0.1:${port}`;
  for (;;) {
    try {
      execFileSync('redis-cli', ['-u', store, 'ping'], { stdio: 'ignore' });
      break;
    } catch {
      await pause(50);
    }
  }
  const redis = (...words) => execFileSync('redis-cli', ['-u', store, ...words]);
  const run = (...words) => start('run', '--url', store, '--ttl', '6s', ...words, 'sleep', '600');
  const first = run('--note', 'release 412', 'db-migrate');
  for (const [name, note] of [['nightly:report', 'cron'], ['jobs:eu:billing', 'batch 9'], ['jobs:us:billing', 'batch 7'], ['index:rebuild', '']]) run('--note', note, name);
  await pause(500);
  for (const note of ['release 413', 'release 414', 'rollback']) run('--note', note, 'db-migrate');
  for (const note of ['train', 'infer', 'infer']) run('--slots', '4', '--note', note, 'gpu');
  for (const note of ['read', 'read']) run('--shared', '--note', note, 'catalog');
  redis('set', 'legacy:import', '5f0f5b6b1a2c4d3e9f8a7b6c5d4e3f2a');
  redis('zadd', 'leasehold:index', '9e15', 'legacy:import');
  const ui = start('ui', '--url', store, '--listen', '127.0.0.1:0', '--allow-break');
  const url = (await line(ui)).replace('open ', '');
  const browser = await Browser.start(CHROMIUM);
  mkdirSync(folder, { recursive: true });
  const save = async (name, page) => writeFileSync(join(folder, name), await page.shot());
  try {
    const page = await browser.page(url, { width: 1100, height: 560 });
    await page.until('all are shown', "document.querySelectorAll('#rows .row').length === 8");
    await pause(4000);
    first.kill('SIGTERM');
    await pause(4000);
    await save('ui-locks.png', page);
    await page.run("[...document.querySelectorAll('#rows .row')].find((row) => row.firstChild.textContent === 'db-migrate').click()");
    await pause(500);
    await save('ui-lock.png', page);
    await page.press('Escape', '5');
    await page.until('the store is examined', "document.querySelectorAll('#store table').length === 2");
    await save('ui-store.png', page);
    await page.press('2');
    await save('ui-contention.png', page);
    const narrow = await browser.page(url, { width: 360, height: 640, dark: true });
    await narrow.until('all are shown', "document.querySelectorAll('#rows .row').length === 8");
    await save('ui-narrow-dark.png', narrow);
  } finally {
    await browser.end();
    for (const child of children.reverse()) child.kill('SIGKILL');
    dev.kill('SIGTERM');
  }
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
