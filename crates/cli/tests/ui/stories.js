// Stories of the page of `leasehold ui` in a browser: node stories.js STORY, with CHROMIUM, LEASEHOLD and STORE in the environment.
'use strict';

const assert = require('node:assert');
const { spawn, execFileSync } = require('node:child_process');
const { mkdtempSync, rmSync, writeFileSync } = require('node:fs');
const { tmpdir } = require('node:os');
const { join } = require('node:path');
const { once } = require('node:events');
const { Browser } = require('./browser.js');

const { CHROMIUM = 'chromium', LEASEHOLD, STORE } = process.env;
const TOKEN = 'a-token-of-these-stories-0123456789';
const folder = mkdtempSync(join(tmpdir(), 'leasehold-stories-'));
const tokens = join(folder, 'token');
writeFileSync(tokens, TOKEN, { mode: 0o600 });
const children = new Set();

function start(...words) {
  const child = spawn(LEASEHOLD, words, { stdio: ['ignore', 'pipe', 'pipe'] });
  children.add(child);
  child.said = '';
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => { child.said += text; });
  child.ended = once(child, 'exit');
  return child;
}

async function ui(port = 0, ...words) {
  const child = start('ui', '--json', '--url', STORE, '--listen', `127.0.0.1:${port}`, '--token-file', tokens, ...words);
  while (!child.said.includes('\n')) await once(child.stdout, 'data');
  child.url = JSON.parse(child.said.slice(0, child.said.indexOf('\n'))).url;
  child.page = `${child.url}#t=${TOKEN}`;
  child.port = Number(new URL(child.url).port);
  return child;
}

// Holds a lock until `let_go`. With so short a TTL, its name is soon in the index.
function hold(name, ...words) {
  const child = start('run', '--url', STORE, '--ttl', '6s', ...words, name, 'sleep', '600');
  child.let_go = async () => {
    child.kill('SIGTERM');
    await child.ended;
  };
  return child;
}

const redis = (...words) => execFileSync('redis-cli', ['-u', STORE, ...words], { encoding: 'utf8' }).trim();
const indexed = (name) => redis('zadd', 'leasehold:index', '9e15', name);
const row = (name) => `[...document.querySelectorAll('#rows .row')].find((row) => row.firstChild.textContent === ${JSON.stringify(name)})`;

const stories = {
  async the_table_follows_acquire_and_release(browser) {
    const page = await browser.page((await ui()).page);
    await page.until('it is live', "document.getElementById('live').textContent === 'live'");
    indexed('jobs:eu');
    const holder = hold('jobs:eu');
    // The name of a lock that is free leaves the index.
    while (redis('exists', 'jobs:eu') === '0') await new Promise((resolve) => setTimeout(resolve, 5));
    indexed('jobs:eu');
    const shown = await page.until('it is shown', row('jobs:eu'));
    assert(shown <= 1500, `shown after ${shown} ms`);
    const text = await page.run(`${row('jobs:eu')}.innerText`);
    assert.match(text, new RegExp(`pid ${holder.pid}: sleep`));
    await holder.let_go();
    const gone = await page.until('it is gone', `!${row('jobs:eu')}`);
    assert(gone <= 1500, `gone after ${gone} ms`);
    await page.press('4');
    await page.until('both are told', "['acquired', 'released'].every((word) => document.getElementById('events').innerText.includes(word))");
    return page;
  },

  async names_of_any_kind_are_text(browser) {
    const page = await browser.page((await ui()).page);
    const names = ['<img src=x onerror="document.title=1">', '</script><b>bold', 'ا'.repeat(20), `\u2066rtl\u2069`, 'x'.repeat(512)];
    for (const name of names) {
      redis('set', name, '<i>theirs</i><i>theirs</i>');
      indexed(name);
    }
    const note = hold('noted', '--note', '<img src=x onerror="document.title=1">');
    for (const name of names) await page.until(name, row(name));
    await page.until('the note', row('noted'));
    assert.match(await page.run(`${row('noted')}.innerText`), /<img src=x onerror=/);
    for (const name of names) {
      await page.run(`${row(name)}.click()`);
      assert.equal(await page.run("document.getElementById('one-name').textContent"), name);
      await page.press('Escape');
    }
    assert.equal(await page.run("document.querySelectorAll('main img, main b, main i:not(.bar i), dialog img, dialog i').length"), 0);
    assert.match(await page.run('document.title'), /^Leasehold/);
    await note.let_go();
    return page;
  },

  async keys_alone_find_show_and_break_a_lock(browser) {
    const server = await ui(0, '--allow-break');
    const page = await browser.page(server.page);
    const [first, second] = [hold('a-first'), hold('b-second')];
    await page.until('both are shown', `${row('a-first')} && ${row('b-second')}`);
    await page.press('/');
    await page.type('b-sec');
    await page.until('one is found', "document.querySelectorAll('#rows .row').length === 1");
    await page.press('Enter', 'Enter');
    await page.until('it is shown', "document.getElementById('one').open && document.getElementById('one-name').textContent === 'b-second'");
    await page.press('b');
    await page.until('the question', "document.getElementById('end').open");
    const fence = await page.run("document.getElementById('end-what').textContent.match(/fence (\\d+)/)[1]");
    await page.type('7');
    await page.press('Tab');
    await page.type('ann');
    await page.press('Tab');
    await page.type('its host is gone');
    await page.press('Enter');
    await page.until('the wrong fence is refused', "document.getElementById('end-said').textContent.includes('not the fence')");
    await page.run("document.getElementById('end-fence').select(), document.getElementById('end-fence').focus()");
    await page.type(fence);
    await page.press('Enter');
    await page.until('it is done', "!document.getElementById('end').open");
    await second.ended;
    while (!server.said.includes('break "b-second", fence')) await once(server.stderr, 'data');
    assert.match(server.said, /by "ann", because "its host is gone": broken/);
    await page.press('Escape', 'Escape', '2');
    await page.until('contention', "!document.getElementById('contention').hidden");
    assert.equal(await page.run("document.activeElement.id"), 'tab-contention');
    await first.let_go();
    return page;
  },

  async a_narrow_screen_needs_no_sideways_scrolling(browser) {
    const page = await browser.page((await ui()).page, { width: 360, height: 640 });
    for (const name of ['short', `${'long-name-without-a-gap'.repeat(8)}`]) {
      redis('set', name, 'theirs');
      indexed(name);
    }
    await page.until('both are shown', "document.querySelectorAll('#rows .row').length === 2");
    for (const key of ['1', '2', '3', '4']) {
      await page.press(key);
      assert.equal(await page.run('document.documentElement.scrollWidth'), 360, `view ${key}`);
    }
    await page.press('1', 'ArrowDown', 'Enter');
    await page.until('one is shown', "document.getElementById('one').open");
    assert.equal(await page.run("document.getElementById('one').scrollWidth <= 360"), true);
    return page;
  },

  async a_store_or_server_that_is_away_is_said_so_and_comes_back(browser) {
    const server = await ui(0, '--request-timeout', '6s');
    const page = await browser.page(server.page);
    redis('set', 'x', 'theirs');
    indexed('x');
    await page.until('it is shown', row('x'));
    const pid = Number(redis('info', 'server').match(/process_id:(\d+)/)[1]);
    process.kill(pid, 'SIGSTOP');
    try {
      await page.until('the store is away', "document.getElementById('away').textContent.startsWith('The store does not answer')");
      assert.equal(await page.run(`!!${row('x')}`), true);
    } finally {
      process.kill(pid, 'SIGCONT');
    }
    await page.until('the store is back', "document.getElementById('away').hidden && document.getElementById('live').textContent === 'live'");
    server.kill('SIGKILL');
    await server.ended;
    await page.until('the server is away', "document.getElementById('away').textContent.startsWith('The server does not answer')");
    await ui(server.port);
    await page.until('the server is back', "document.getElementById('away').hidden && document.getElementById('live').textContent === 'live'");
    redis('del', 'x');
    await page.until('it is gone', `!${row('x')}`);
    return page;
  },

  async a_hidden_page_asks_nothing(browser) {
    const page = await browser.page((await ui(0, '--interval', '50ms')).page);
    for (const name of ['stays', 'x']) {
      redis('set', name, 'theirs');
      indexed(name);
    }
    await page.until('both are shown', `${row('stays')} && ${row('x')}`);
    const looks = () => Number(redis('info', 'commandstats').match(/cmdstat_evalsha:calls=(\d+)/)[1]);
    const hide = (hidden) => page.run(`Object.defineProperty(document, 'hidden', { value: ${hidden}, configurable: true }), document.dispatchEvent(new Event('visibilitychange')), 0`);
    await hide(true);
    await page.until('it rests', "document.getElementById('live').textContent === 'paused'");
    // It may be in a look. Twenty intervals without one are no chance.
    let before;
    do {
      before = looks();
      await new Promise((resolve) => setTimeout(resolve, 1000));
    } while (looks() !== before);
    redis('del', 'x');
    await hide(false);
    await page.until('it is live', "document.getElementById('live').textContent === 'live'");
    await page.until('it is gone', `!${row('x')}`);
    // What was not seen is no hand-over.
    await page.run(`${row('stays')}.click()`);
    assert.match(await page.run("document.getElementById('one-line').innerText"), /^(seen since|from) .* until now: foreign: string$/);
    return page;
  },

  async a_link_has_search_and_lock_but_no_token(browser) {
    const server = await ui();
    const page = await browser.page(server.page);
    for (const name of ['one', 'two']) {
      redis('set', name, 'theirs');
      indexed(name);
    }
    await page.until('both are shown', `${row('one')} && ${row('two')}`);
    assert.equal(await page.run('location.href'), server.url, 'the token is out of the address');
    await page.press('/');
    await page.type('on');
    await page.press('Enter', 'Enter');
    await page.until('it is shown', "document.getElementById('one').open");
    const link = await page.run('location.href');
    assert.equal(link, `${server.url}?q=on&lock=one`);
    const other = await browser.page(link);
    await other.until('it asks for the token', "!document.getElementById('ask').hidden");
    await other.run("document.getElementById('token').focus()");
    await other.type(TOKEN);
    await other.press('Enter');
    await other.until('the link is followed', `${row('one')} && !${row('two')} && document.getElementById('one').open`);
    return page;
  },
};

async function tell(name) {
  const browser = await Browser.start(CHROMIUM);
  try {
    const page = await stories[name](browser);
    assert.deepEqual(page.faults, []);
  } finally {
    for (const child of children) child.kill('SIGKILL');
    rmSync(folder, { recursive: true, force: true });
    await browser.end();
  }
}

tell(process.argv[2]).catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
