// Stories of the page of `leasehold ui` in a browser: node stories.js STORY, with CHROMIUM, LEASEHOLD and STORE in the environment.
'use strict';

const assert = require('node:assert');
const { spawn, execFileSync } = require('node:child_process');
const { mkdtempSync, readFileSync, rmSync, writeFileSync } = require('node:fs');
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
  const child = spawn(LEASEHOLD, words, { stdio: ['pipe', 'pipe', 'pipe'] });
  children.add(child);
  child.said = '';
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => { child.said += text; });
  child.ended = once(child, 'exit');
  return child;
}

async function ui(port = 0, ...words) {
  const child = start('ui', '--json', ...(words.includes('--url') ? [] : ['--url', STORE]), '--listen', `127.0.0.1:${port}`, '--token-file', tokens, ...words);
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
const rows = "[...document.querySelectorAll('#rows .row')].sort((a, b) => a.offsetTop - b.offsetTop)";
const row = (name) => `[...document.querySelectorAll('#rows .row')].find((row) => row.firstChild.textContent === ${JSON.stringify(name)})`;

const text = (id) => `document.getElementById('${id}').innerText`;

// Chooses an option, as a person does.
const choose = (id, value) => `document.getElementById('${id}').value = '${value}', document.getElementById('${id}').dispatchEvent(new Event('change'))`;

// `leasehold hold --many` with these locks. Returns when all have been taken, or wait.
async function many(event, names) {
  const child = start('hold', '--url', STORE, '--many');
  names.forEach((lock, id) => child.stdin.write(`${JSON.stringify({ do: 'acquire', id, lock, ttl_ms: 3_600_000, wait_ms: 3_600_000 })}\n`));
  while (child.said.split(`"event":"${event}"`).length <= names.length) await once(child.stdout, 'data');
  return child;
}

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
    const text = await page.run(`${row('jobs:eu')}.innerText`);
    assert.match(text, new RegExp(`pid ${holder.pid}: sleep`));
    await holder.let_go();
    const gone = await page.until('it is gone', `!${row('jobs:eu')}`);
    console.log(`the table follows an acquire after ${shown} ms, and a release after ${gone} ms`);
    await page.press('4');
    await page.until('both are told', "['acquired', 'released'].every((word) => document.getElementById('events').innerText.includes(word))");
    return page;
  },

  async locks_stand_in_the_order_of_their_risk(browser) {
    const server = await ui(0, '--interval', '50ms');
    const page = await browser.page(server.page);
    for (const name of ['a-far', 'b-near', 'c-endless']) {
      redis('set', name, 'theirs', ...(name === 'c-endless' ? [] : ['px', '3600000']));
      indexed(name);
    }
    for (const name of ['z-older', 'y-younger']) {
      hold(name);
      await page.until(name, row(name));
    }
    await page.until('all are shown', `${rows}.length === 5`);
    redis('pexpire', 'b-near', '1000000');
    const order = `${rows}.map((row) => row.firstChild.textContent).join(' ')`;
    await page.until('less than a third is left', `${order} === 'c-endless b-near z-older y-younger a-far'`);
    assert.deepEqual(await page.run(`${rows}.map((row) => row.children[1].textContent)`), ['foreign', 'foreign', 'exclusive', 'exclusive', 'foreign']);
    const bars = await page.run(`${rows}.map((row) => Number(row.querySelector('i').style.transform.match(/[0-9.]+/)[0]))`);
    assert(bars[0] === 1 && bars[1] > 0.2 && bars[1] < 1 / 3 && bars[4] > 0.9, String(bars));
    await page.run(choose('filter', 'risk'));
    assert.equal(await page.run(order), 'c-endless b-near');
    await page.run(`${choose('filter', '')}, ${choose('sort', 'name')}`);
    assert.equal(await page.run(order), 'a-far b-near c-endless y-younger z-older');
    return page;
  },

  async a_timeline_has_holders_hand_overs_and_losses(browser) {
    const page = await browser.page((await ui()).page);
    const first = hold('job', '--note', 'one');
    await page.until('the first holds', row('job'));
    const second = hold('job', '--note', 'two');
    await page.until('the second waits', `${row('job')}.querySelector('.queue').textContent === '1'`);
    await first.let_go();
    await page.until('it was handed over', `${row('job')}.innerText.includes('two')`);
    second.kill('SIGKILL');
    await page.until('the lease has run out', `!${row('job')}`);
    await page.press('2');
    const [share, queue, hands] = (await page.run("[...document.querySelectorAll('#contention td')].slice(1).map((cell) => cell.textContent)")).map(parseFloat);
    assert(share > 0 && queue === 1 && hands > 0, `${share} ${queue} ${hands}`);
    await page.press('4');
    const told = await page.run(text('events'));
    for (const word of ['acquired', 'queue', 'handed over', 'lease ran out']) assert(told.includes(word), told);
    await page.press('1');
    await page.run("open('job')");
    const line = (await page.run("[...document.querySelectorAll('#one-line li')].map((part) => part.textContent)")).join('\n');
    const part = (from, how, note) => `${from} \\S+( [AP]M)? to \\S+( [AP]M)? \\(${how}\\): .*two\\), fence \\d+`.replace('two', note);
    assert.match(line, new RegExp(`^${part('from', 'its lease had run out', 'two')}\n${part('(from|seen since)', 'handed over', 'one')}$`));
    return page;
  },

  async the_store_is_examined_while_its_view_is_seen(browser) {
    const page = await browser.page((await ui()).page);
    await page.until('it is live', "document.getElementById('live').textContent === 'live'");
    const examined = () => /latency\|latest:calls=(\d+)/.exec(redis('info', 'commandstats'))?.[1];
    assert.equal(examined(), undefined);
    await page.press('5');
    await page.until('it is shown', "document.querySelectorAll('#store table').length === 2");
    const [nodes, findings] = await page.run("[...document.querySelectorAll('#store table')].map((table) => table.innerText)");
    assert.match(nodes, /127\.0\.0\.1:\d+\tprimary\t\w+ \d/);
    assert.match(findings, /rep\.count\s+no replica: .*\n.*add a replica/);
    assert(!findings.includes('acl.probe'), findings);
    assert.equal(examined(), '1');
    assert.match(await page.run('location.search'), /tab=store/);
    return page;
  },

  async a_page_says_what_it_does_not_show(browser) {
    redis('acl', 'setuser', 'narrow', 'on', '>secret', '+@all', '&*', '~leasehold:*', '~*open*');
    for (const name of ['open', 'closed']) {
      redis('set', name, 'theirs');
      indexed(name);
    }
    const page = await browser.page((await ui(0, '--url', STORE.replace('://', '://narrow:secret@'))).page);
    await page.until('what may be shown is', row('open'));
    const said = await page.run(text('whole'));
    assert.match(said, /a lock that was taken just now is missing, and so is a foreign lock/);
    assert.match(said, /1 more names are not shown/);
    assert.equal(await page.run(`${rows}.length`), 1);
    return page;
  },

  async the_colours_are_those_of_the_system_or_of_the_key(browser) {
    const page = await browser.page((await ui()).page, { dark: true });
    const isDark = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every((part) => part < 60)";
    await page.until('it is dark', isDark);
    await page.press('t');
    await page.until('it is light', `!(${isDark})`);
    await page.go(await page.run('location.href'));
    await page.until('it stays light', `!(${isDark})`);
    return page;
  },

  async a_thousand_locks_are_few_requests_and_few_rows(browser) {
    const names = Array.from({ length: 1000 }, (_, at) => `jobs:${at}`);
    await many('acquired', names);
    await many('waiting', names.slice(0, 200));
    redis('zadd', 'leasehold:index', ...names.flatMap((name) => ['9e15', name]));
    const server = await ui();
    const page = await browser.page(server.page);
    await page.until('all are shown', `${text('sum')}.startsWith('1000 locks, 200 waiting')`);
    assert(await page.run(`${rows}.length`) < 60, 'rows that cannot be seen are not in the document');
    await page.run('window.frames_ = []; { let last = performance.now(); const next = (now) => { frames_.push(now - last); last = now; requestAnimationFrame(next); }; requestAnimationFrame(next); } 0');
    const looks = () => page.run('counted.looks');
    const asked = () => Number(redis('info', 'commandstats').match(/cmdstat_evalsha:calls=(\d+)/)[1]);
    const cpu = () => readFileSync(`/proc/${server.pid}/stat`, 'utf8').split(') ')[1].split(' ').slice(11, 13).reduce((sum, part) => sum + Number(part), 0) * 10;
    const begun = await looks();
    const before = { asked: asked(), cpu: cpu(), at: Date.now() };
    await page.until('ten looks', `counted.looks >= ${begun + 10}`);
    const requests = (asked() - before.asked) / 10;
    const share = (100 * (cpu() - before.cpu)) / (Date.now() - before.at);
    // Waiters ask too, seldom. With a request for each lock, it would be a thousand.
    assert(requests <= 60, `${requests} requests for a look`);
    console.log(`1,000 locks, 200 waiters: ${requests} requests for a look, ${share.toFixed(1)} % of a core, longest frame ${Math.max(...await page.run('frames_')).toFixed(0)} ms`);
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
    assert.match(await page.run(text('end-what')), /may work on for up to [1-6]s/);
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
    await page.until('its timeline has it', `${text('one-line')}.includes('broken by this page')`);
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
    for (const key of ['1', '2', '3', '4', '5']) {
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
    await page.run(`${choose('filter', 'foreign')}, ${choose('sort', 'name')}`);
    await page.press('/');
    await page.type('on');
    await page.press('Enter', 'Enter');
    await page.until('it is shown', "document.getElementById('one').open");
    const link = await page.run('location.href');
    assert.equal(link, `${server.url}?f=foreign&s=name&q=on&lock=one`);
    const other = await browser.page(link);
    await other.until('it asks for the token', "!document.getElementById('ask').hidden");
    await other.run("document.getElementById('token').focus()");
    await other.type(TOKEN);
    await other.press('Enter');
    await other.until('the link is followed', `${row('one')} && !${row('two')} && document.getElementById('one').open`);
    assert.deepEqual(await other.run("['filter', 'sort', 'search'].map((id) => document.getElementById(id).value)"), ['foreign', 'name', 'on']);
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
