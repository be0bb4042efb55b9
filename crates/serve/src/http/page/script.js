// The page of `leasehold ui`. It has no library and no build step. Names and notes are only ever text: nothing is parsed as HTML.
'use strict';

const $ = (id) => document.getElementById(id);
const EVENTS = 500, LINE = 200, AROUND = 10, MOST = 10_000, MINUTE = 60_000;
// A lease of which less was left, a look ago, has run out.
const NEAR = 150;
const UNSEEN = 'not seen: this page was not listening';

// What the server has told. A lock: its document, when it ends and since when it is held (by this page's clock), and what was counted.
const locks = new Map();
const events = [];
const counted = { looks: 0, ms: 0, at: null };
let hello = { store: '', interval_ms: 1000, may_break: false };
let last = { hidden: 0, unknown: {} };
let shown = [];
let chosen = null;

// Text.

function el(tag, className, ...content) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...content.map((part) => (part instanceof Node ? part : String(part))));
  return made;
}

function span(ms) {
  if (ms === null) return '-';
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${s % 60}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h${Math.floor((s % 3600) / 60)}m`;
  return `${Math.floor(s / 86400)}d${Math.floor((s % 86400) / 3600)}h`;
}

function party(one) {
  return `${one.host} (pid ${one.pid}${one.note ? `: ${one.note}` : ''})`;
}

function who(holder) {
  if (!holder) return 'free';
  if (holder.kind === 'leasehold') return party(holder);
  const looks = holder.format ? `, looks like ${holder.format}` : '';
  const prefix = holder.prefix ? ` ${holder.prefix}…` : '';
  return `foreign: ${holder.type}${prefix}${looks}`;
}

function holders(doc) {
  return doc.state === 'held' ? 1 + doc.others.length + doc.others_omitted : 0;
}

function several(doc) {
  const count = holders(doc);
  if (!doc.mode || doc.mode === 'exclusive') return null;
  return doc.mode === 'shared' ? `${count} reader${count === 1 ? '' : 's'}` : `${count} of ${doc.mode.split('/')[1]} slots`;
}

function kind(doc) {
  if (!doc.mode) return '-';
  if (doc.holder.kind === 'foreign') return 'foreign';
  if (doc.mode === 'exclusive') return 'mutex, or a writer';
  return doc.mode === 'shared' ? 'readers' : `semaphore of ${doc.mode.split('/')[1]} slots`;
}

function shortKind(doc) {
  if (!doc.mode) return '';
  if (doc.holder.kind === 'foreign') return 'foreign';
  return { exclusive: 'exclusive', shared: 'readers' }[doc.mode] || 'slots';
}

const clock = (time) => new Date(time).toLocaleTimeString();

// State.

function lockOf(name) {
  let lock = locks.get(name);
  if (!lock) {
    lock = { name, doc: null, ends: null, since: null, full: 0, held: 0, most: 0, hands: 0, broken: null, line: [], row: null };
    locks.set(name, lock);
  }
  return lock;
}

function take(doc, now) {
  const lock = lockOf(doc.name);
  const same = lock.doc && lock.doc.fence === doc.fence && who(lock.doc.holder) === who(doc.holder);
  lock.doc = doc;
  lock.seen = now;
  lock.ends = doc.lease_ms === null ? null : now + doc.lease_ms;
  lock.since = doc.held_for_ms === null ? null : now - doc.held_for_ms;
  lock.full = Math.max(same ? lock.full : 0, doc.lease_ms || 0);
  lock.text = [doc.name, who(doc.holder), doc.fence, ...doc.others.map((it) => who(it.holder)), ...doc.queue.map(party)].join('\n').toLowerCase();
  lock.stale = true;
}

function gone(name) {
  const lock = locks.get(name);
  if (lock) [lock.doc, lock.ends, lock.since, lock.stale] = [null, null, null, true];
}

// A part of a lock's timeline ends.
function close(lock, time, how) {
  const part = lock.line.at(-1);
  if (part && part.to === null) [part.to, part.how] = [time, how];
}

function howItEnded(lock, part, ranOut, event) {
  if (part && lock.broken !== null && part.fence === lock.broken) return 'broken by this page';
  if (ranOut) return 'its lease had run out';
  return event === 'handed_over' ? 'handed over' : 'released, or broken';
}

function change(doc) {
  const lock = lockOf(doc.name);
  const ranOut = lock.ends !== null && performance.now() > lock.ends - NEAR;
  const part = lock.line.at(-1);
  const isKnown = doc.initial && part && part.to === null && part.fence === doc.fence && part.who === who(doc.holder);
  if (['acquired', 'handed_over', 'released'].includes(doc.event) && !isKnown) {
    close(lock, doc.time, doc.initial ? UNSEEN : howItEnded(lock, part, ranOut, doc.event));
    if (doc.event === 'handed_over') lock.hands += 1;
    if (doc.holder) lock.line.push({ from: doc.time, to: null, who: who(doc.holder), fence: doc.fence, initial: doc.initial });
    if (lock.line.length > LINE) lock.line.shift();
  }
  if (!doc.initial) {
    events.unshift({ ...doc, ranOut: ranOut && doc.event === 'released' });
    events.length = Math.min(events.length, EVENTS);
  }
}

function look(doc) {
  if (doc.error !== null && !doc.full) return;
  const now = performance.now() - doc.age_ms;
  last = doc;
  // What lies between two looks far apart was not seen.
  const passed = counted.at === null ? 0 : Math.min(now - counted.at, 3 * hello.interval_ms);
  counted.looks += 1;
  counted.ms += passed;
  counted.at = now;
  if (doc.full) {
    const names = new Set(doc.locks.map((lock) => lock.name));
    for (const lock of locks.values()) {
      if (lock.doc && !names.has(lock.name)) {
        close(lock, doc.time, UNSEEN);
        gone(lock.name);
      }
    }
  }
  doc.changes.forEach(change);
  doc.gone.forEach(gone);
  for (const one of doc.locks) {
    take(one, now);
    const lock = locks.get(one.name);
    // It was seen by other pages first, or its holder changed while this one did not listen.
    const part = lock.line.at(-1);
    if (one.holder && (!part || part.to !== null || part.fence !== one.fence)) {
      close(lock, doc.time, UNSEEN);
      lock.line.push({ from: doc.time, to: null, who: who(one.holder), fence: one.fence, initial: true });
    }
  }
  for (const lock of locks.values()) {
    if (!lock.doc) continue;
    lock.held += lock.doc.state === 'held' ? passed : 0;
    lock.most = Math.max(lock.most, lock.doc.queue.length);
  }
  for (const lock of locks.size > MOST ? [...locks.values()] : []) {
    if (locks.size > MOST && !lock.doc) locks.delete(lock.name);
  }
}

// Risk.

function left(lock, now) {
  return lock.ends === null ? null : Math.max(0, lock.ends - now);
}

function risk(lock, now) {
  if (lock.doc.state !== 'held') return '';
  if (lock.ends === null) return 'endless';
  return lock.full && left(lock, now) < lock.full / 3 ? 'risk' : '';
}

// The address: search, filter, order, view and lock, so that a link can be sent. Never the token.

const state = new Proxy(new URLSearchParams(location.search), {
  get: (all, key) => all.get(key) || '',
  set(all, key, value) {
    value ? all.set(key, value) : all.delete(key);
    const query = all.toString();
    history.replaceState(null, '', location.pathname + (query ? `?${query}` : ''));
    return true;
  },
});

const FILTERS = {
  risk: (lock, now) => risk(lock, now) !== '',
  queue: (lock) => lock.doc.queue.length > 0,
  foreign: (lock) => lock.doc.holder && lock.doc.holder.kind === 'foreign',
  several: (lock) => holders(lock.doc) > 1,
};
const RANK = { endless: 0, risk: 1, '': 2 };
const byName = (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
const byAge = (a, b) => (a.since ?? Infinity) - (b.since ?? Infinity) || byName(a, b);
const SORTS = {
  '': (a, b) => a.rank - b.rank || byAge(a, b),
  name: byName,
  queue: (a, b) => b.doc.queue.length - a.doc.queue.length || byName(a, b),
  age: byAge,
};

// The table of locks: only the rows that can be seen are in the document.

function cells(row) {
  const made = ['name', 'kind', 'who', 'held num', 'lease', 'queue num', 'fence num'].map((name) => el('span', name));
  const bar = el('span', 'bar', el('i'));
  made[4].append(bar, el('span', 'left'));
  row.append(...made);
  return made;
}

function fill(lock, index, now) {
  if (!lock.row) {
    lock.row = el('div', 'row');
    lock.row.setAttribute('role', 'option');
    lock.cells = cells(lock.row);
    lock.row.addEventListener('click', () => { choose(lock.name); open(lock.name); });
    lock.stale = true;
  }
  const { row, doc } = lock;
  const [name, kinds, holder, held, lease, queue, fence] = lock.cells;
  if (lock.stale) {
    lock.stale = false;
    name.textContent = name.title = doc.name;
    kinds.textContent = shortKind(doc);
    kinds.title = kind(doc);
    const text = several(doc) || who(doc.holder);
    holder.textContent = holder.title = text;
    queue.textContent = doc.queue.length || '';
    fence.textContent = doc.fence ?? '-';
  }
  const rest = left(lock, now), of = risk(lock, now);
  held.textContent = lock.since === null ? '-' : span(now - lock.since);
  lease.lastChild.textContent = doc.state !== 'held' ? '' : rest === null ? 'NEVER ENDS' : span(rest);
  const share = doc.state !== 'held' ? 0 : rest === null ? 1 : lock.full ? rest / lock.full : 0;
  lease.firstChild.firstChild.style.transform = `scaleX(${share.toFixed(3)})`;
  row.className = `row ${of}`;
  row.id = `row-${index}`;
  row.setAttribute('aria-selected', lock.name === chosen);
  row.setAttribute('aria-posinset', index + 1);
  row.setAttribute('aria-setsize', shown.length);
  row.style.top = `${index * height()}px`;
  return row;
}

let rowHeight = 40;
const height = () => rowHeight;

function drawRows() {
  const list = $('list'), rows = $('rows'), now = performance.now();
  rows.style.height = `${shown.length * height()}px`;
  const first = Math.max(0, Math.floor(list.scrollTop / height()) - AROUND);
  const end = Math.min(shown.length, Math.ceil((list.scrollTop + list.clientHeight) / height()) + AROUND);
  const wanted = new Set();
  for (let index = first; index < end; index += 1) {
    const row = fill(shown[index], index, now);
    wanted.add(row);
    if (row.parentNode !== rows) rows.append(row);
  }
  for (const row of [...rows.children]) if (!wanted.has(row)) row.remove();
  const at = shown.findIndex((lock) => lock.name === chosen);
  at >= first && at < end ? list.setAttribute('aria-activedescendant', `row-${at}`) : list.removeAttribute('aria-activedescendant');
}

function drawLocks() {
  const now = performance.now(), search = state.q.toLowerCase(), filter = FILTERS[state.f];
  shown = [];
  for (const lock of locks.values()) {
    if (!lock.doc || (search && !lock.text.includes(search)) || (filter && !filter(lock, now))) continue;
    lock.rank = RANK[risk(lock, now)];
    shown.push(lock);
  }
  shown.sort(SORTS[state.s] || SORTS['']);
  const all = [...locks.values()].filter((lock) => lock.doc).length;
  $('none').hidden = shown.length > 0;
  $('none').textContent = all === 0 ? 'No lock is known.' : 'No lock matches.';
  drawRows();
}

// The other views. Their figures are samples: one for each look.

function table(head, rows, className) {
  const made = el('table', className, el('thead', '', el('tr', '', ...head.map((text) => el('th', '', text)))));
  made.append(el('tbody', '', ...rows.map((row) => el('tr', '', ...row.map((cell) => el('td', '', cell))))));
  return made;
}

function nameButton(name) {
  const button = el('button', 'name', name);
  button.type = 'button';
  button.addEventListener('click', () => open(name));
  return button;
}

const matches = (lock) => !state.q || lock.name.toLowerCase().includes(state.q.toLowerCase());

function drawContention(place) {
  const all = [...locks.values()].filter((lock) => matches(lock) && lock.held > 0);
  all.sort((a, b) => b.most - a.most || b.hands - a.hands || b.held - a.held || byName(a, b));
  const rows = all.slice(0, 200).map((lock) => {
    const share = Math.round((100 * lock.held) / counted.ms);
    return [nameButton(lock.name), `${share} %`, lock.most, ((1000 * lock.hands) / counted.ms).toFixed(2)];
  });
  place.replaceChildren(
    el('p', '', `From ${counted.looks} looks in ${span(counted.ms)}, the time that this page has listened. What happens between two looks is not seen. ${all.length > 200 ? `The first 200 of ${all.length}.` : ''}`),
    table(['Lock', 'Share of time held', 'Longest queue', 'Hand-overs a second'], rows),
  );
}

function drawHolders(place) {
  const hosts = new Map();
  for (const lock of locks.values()) {
    if (!lock.doc || !matches(lock)) continue;
    const count = (one, what) => {
      const host = !one ? null : one.kind === 'foreign' ? '(foreign)' : one.host;
      if (host === null) return;
      const of = hosts.get(host) || { holds: 0, waits: 0, names: new Set() };
      of[what] += 1;
      of.names.add(lock.name);
      hosts.set(host, of);
    };
    count(lock.doc.holder, 'holds');
    lock.doc.others.forEach((other) => count(other.holder, 'holds'));
    lock.doc.queue.forEach((waiter) => count(waiter, 'waits'));
  }
  const all = [...hosts].sort(([, a], [, b]) => b.holds - a.holds || b.waits - a.waits);
  const rows = all.slice(0, 200).map(([host, of]) => {
    const button = el('button', '', host);
    button.type = 'button';
    button.addEventListener('click', () => { $('search').value = state.q = host; tab('locks'); });
    return [button, of.holds, of.waits, of.names.size];
  });
  place.replaceChildren(
    el('p', '', all.length > 200 ? `The first 200 of ${all.length} hosts.` : ''),
    table(['Host', 'Holds', 'Waits', 'Locks'], rows),
  );
}

const WORDS = { acquired: 'acquired', released: 'released', handed_over: 'handed over', holders: 'holders', immortal: 'never ends', queue: 'queue' };

function drawEvents(place) {
  const seen = events.filter((event) => !state.q || `${event.name}\n${who(event.holder)}`.toLowerCase().includes(state.q.toLowerCase()));
  const rows = seen.slice(0, 200).map((event) => {
    const of = event.holder || (event.before && event.before.holder);
    const fence = event.fence ?? (event.before && event.before.fence) ?? '-';
    return [clock(event.time), event.ranOut ? 'lease ran out' : WORDS[event.event] || event.event, nameButton(event.name), `${of ? who(of) : ''}${event.queue ? `, ${event.queue} waiting` : ''}`, fence];
  });
  place.replaceChildren(
    el('p', '', `The last ${seen.length} since this page was opened, at most ${EVENTS}; 200 are shown. Changes between two looks are not seen.`),
    table(['Time', 'Event', 'Lock', 'Who', 'Fence'], rows),
  );
}

// The store, as `leasehold doctor` sees it. It is asked for only while this view is seen.

const store = { doc: null, at: 0, why: '', next: 0 };

async function examine() {
  store.next = Infinity;
  try {
    const answer = await ask('../api/v1/store');
    const doc = await answer.json();
    if (!answer.ok) throw new Error(doc.message);
    Object.assign(store, { doc, at: performance.now() - 1000 * Number(answer.headers.get('Age')), why: '' });
  } catch (error) {
    store.why = error.message;
  }
  store.next = performance.now() + (store.why ? MINUTE / 12 : MINUTE);
  draw();
}

const ROLES = { master: 'primary', slave: 'replica' };
const STATES = ['fail', 'warn', 'unknown', 'info', 'ok'];

function about(node) {
  if (node.error !== null) return el('span', 'fail', node.error);
  const parts = [];
  if (node.votes_in_ms !== null) parts.push(node.votes_in_ms ? `votes in ${span(node.votes_in_ms)}` : 'votes');
  if (node.slots !== null) parts.push(`${node.slots} slots`);
  if (node.primary) parts.push(`follows ${node.primary}`);
  if (node.role === 'master' && node.votes_in_ms === null && !node.replicas.length) parts.push('no replica');
  for (const it of node.replicas) parts.push(`replica ${it.server}: ${it.state}${it.lag_ms === null ? '' : `, heard ${span(it.lag_ms)} ago`}`);
  return parts.join('; ') || '-';
}

function finding(it) {
  const fix = it.remedy ? [el('div', 'fix', it.remedy)] : [];
  const worse = it.correctness === it.state ? [] : [el('div', 'fix', `${it.correctness} for correctness`)];
  return [el('div', 'grade', el('span', `state ${it.state}`, it.state), ...worse), el('span', 'id', it.id), el('div', '', it.text, ...fix)];
}

function drawStore(place) {
  const now = performance.now(), { doc, why } = store;
  if (now > store.next && !document.hidden) examine();
  const parts = [];
  if (why) parts.push(el('p', 'bad', `Not examined: ${why}`));
  if (doc) {
    const counts = STATES.filter((state) => doc.counts[state]).map((state) => `${doc.counts[state]} ${state}`);
    parts.push(el('p', '', `${counts.join(', ')}: the quick checks of leasehold doctor that write nothing, for leases of ${span(doc.ttl_ms)}, ${span(now - store.at)} ago.`));
    const nodes = doc.nodes.map((node) => [node.server, el('span', 'id', ROLES[node.role] || node.role || '-'), node.version || '-', span(node.uptime_ms), about(node)]);
    if (nodes.length) parts.push(table(['Server', 'Role', 'Version', 'Up', 'State'], nodes, 'nodes'));
    const found = doc.findings.filter((it) => it.state !== 'ok');
    found.sort((a, b) => STATES.indexOf(a.state) - STATES.indexOf(b.state));
    parts.push(table(['State', 'Check', 'Finding'], found.map(finding), 'findings'));
  } else if (!why) {
    parts.push(el('p', '', 'The store is being examined.'));
  }
  place.replaceChildren(...parts);
}

// One lock.

function open(name) {
  state.lock = name;
  drawOne();
  if (!$('one').open) $('one').showModal();
}

function drawOne() {
  const name = state.lock;
  if (!name) return;
  const lock = locks.get(name), doc = lock && lock.doc, now = performance.now();
  $('one-name').textContent = name;
  const pairs = [];
  if (!doc) {
    pairs.push(['state', 'free, or not in the index']);
  } else {
    pairs.push(['state', doc.state], ['kind', kind(doc)]);
    const all = doc.holder ? [doc, ...doc.others] : [];
    all.forEach((one, index) => {
      const slot = one.slot ? `slot ${one.slot}: ` : '';
      const rest = index ? (one.lease_ms === null ? 'NEVER ENDS' : `lease ${span(one.lease_ms)} at the last change`) : lock.ends === null ? 'NEVER ENDS' : `lease left ${span(left(lock, now))}, unless renewed`;
      const held = index || lock.since === null ? '' : `, held ${span(now - lock.since)}`;
      const fence = one.fence === null ? '' : `, fence ${one.fence}`;
      pairs.push([index ? '' : 'holder', `${slot}${who(one.holder)}${fence}${held}, ${rest}`]);
    });
    if (doc.others_omitted) pairs.push(['', `and ${doc.others_omitted} more`]);
    pairs.push(['queue', `${doc.queue.length} waiting`]);
    doc.queue.slice(0, 50).forEach((waiter) => {
      pairs.push(['', `${waiter.place}. ${party(waiter)}, ${waiter.mode}${waiter.alive_for_ms ? '' : ', SILENT: will be passed over'}`]);
    });
    if (doc.queue.length > 50) pairs.push(['', `and ${doc.queue.length - 50} more`]);
  }
  const list = el('dl');
  for (const [what, text] of pairs) list.append(el('dt', '', what), el('dd', '', text));
  $('one-body').replaceChildren(list);
  const line = lock ? lock.line.slice().reverse() : [];
  $('one-line').replaceChildren(...line.map((part) => {
    const from = `${part.initial ? 'seen since' : 'from'} ${clock(part.from)}`;
    const to = part.to ? `to ${clock(part.to)} (${part.how})` : 'until now';
    return el('li', '', `${from} ${to}: ${part.who}${part.fence === null ? '' : `, fence ${part.fence}`}`);
  }));
  $('one-break').hidden = !(hello.may_break && doc && doc.fence !== null);
}

// Breaking.

let ending = null;

function askToBreak() {
  const lock = locks.get(state.lock);
  if (!hello.may_break || !lock || !lock.doc || lock.doc.fence === null) return;
  ending = { name: lock.name, fence: lock.doc.fence };
  // A holder that cannot hear of it works until its lease ends.
  const rest = Math.max(...[lock.doc, ...lock.doc.others].map((one) => one.lease_ms)) - (performance.now() - lock.seen);
  const readers = several(lock.doc);
  $('end-what').textContent = `${lock.name}: ${readers || who(lock.doc.holder)}, fence ${ending.fence}. A holder may work on for up to ${span(Math.max(1000, rest))}.`;
  $('end-fence').value = $('end-why').value = $('end-said').textContent = '';
  $('end').showModal();
  $('end-fence').focus();
}

async function breakIt(event) {
  event.preventDefault();
  const said = $('end-said');
  if ($('end-fence').value.trim() !== String(ending.fence)) {
    said.textContent = `This is not the fence of the holder that was shown: ${ending.fence}.`;
    return;
  }
  // Before the answer: the look that shows it may come first.
  const lock = lockOf(ending.name);
  lock.broken = ending.fence;
  const body = JSON.stringify({ ...ending, who: $('end-who').value, reason: $('end-why').value });
  try {
    const answer = await ask('../api/v1/break', { method: 'POST', body, headers: { 'Content-Type': 'application/json' } });
    const doc = await answer.json();
    if (doc.broken) return $('end').close();
    lock.broken = null;
    said.textContent = doc.message || 'Not broken: the holder has changed. Look again.';
  } catch (error) {
    said.textContent = `No answer: ${error.message}. The lock may be broken: look again.`;
  }
}

// The stream.

let token = '';

function ask(path, options = {}) {
  return fetch(path, { ...options, headers: { ...options.headers, ...(token && { Authorization: `Bearer ${token}` }) }, cache: 'no-store' });
}

function live(word, how) {
  $('live').textContent = word;
  $('live').className = how;
}

let stop = null;
let tries = 0;

async function listen() {
  if (stop || document.hidden) return;
  const mine = (stop = new AbortController());
  let why = 'The server has ended the stream.';
  try {
    const answer = await ask('../api/v1/looks', { signal: mine.signal });
    if (answer.status === 401) {
      stop = null;
      return askForToken(token !== '');
    }
    if (!answer.ok) throw new Error((await answer.json()).message);
    sessionStorage.setItem('token', token);
    $('ask').hidden = true;
    $('main').hidden = false;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      text += value;
      let end;
      while ((end = text.indexOf('\n\n')) >= 0) {
        hear(text.slice(0, end));
        text = text.slice(end + 2);
      }
    }
  } catch (error) {
    why = error.message;
  }
  if (stop !== mine) return;
  stop = null;
  tries += 1;
  live('away', 'bad');
  $('main').hidden = false;
  away(`The server does not answer (${why}). This page tries again, and shows the last look.`);
  setTimeout(listen, Math.min(5000, 500 * 2 ** Math.min(tries, 4)));
}

function away(text) {
  $('away').hidden = !text;
  $('away').textContent = text;
}

function hear(block) {
  let name = 'message', data = '';
  for (const line of block.split('\n')) {
    if (line.startsWith('event:')) name = line.slice(6).trim();
    if (line.startsWith('data:')) data += line.slice(5).trim();
  }
  if (!data) return;
  const doc = JSON.parse(data);
  if (name === 'hello') {
    hello = doc;
    tries = 0;
    $('where').textContent = doc.store;
    document.title = `Leasehold: ${doc.store}`;
    live('live', 'good');
    away('');
    if (state.lock) open(state.lock);
  } else if (name === 'look') {
    look(doc);
    if (doc.error === null) {
      live('live', 'good');
      away('');
    } else {
      live('store away', 'warn');
      away(`The store does not answer: ${doc.error}. This page shows the look of ${last.time ? clock(last.time) : 'before'}.`);
    }
    draw();
  }
}

function askForToken(wrong) {
  live('no token', 'bad');
  token = '';
  // The form could not be used behind them.
  for (const dialog of document.querySelectorAll('dialog[open]')) dialog.close();
  $('ask').hidden = false;
  $('main').hidden = true;
  if (wrong) $('ask-why').textContent = 'The server has another token. It is fresh each time the server starts: see what leasehold ui printed.';
  $('token').focus();
}

function visible() {
  if (document.hidden) {
    if (stop) [stop, tries] = [stop.abort() || null, 0];
    live('paused', 'warn');
  } else {
    listen();
  }
}

// Drawing.

const VIEWS = { locks: drawLocks, contention: drawContention, holders: drawHolders, events: drawEvents, store: drawStore };

function tab(name) {
  state.tab = name === 'locks' ? '' : name;
  draw();
}

function draw() {
  const now = VIEWS[state.tab] ? state.tab : 'locks';
  for (const name of Object.keys(VIEWS)) {
    $(name).hidden = name !== now;
    const button = $(`tab-${name}`);
    button.setAttribute('aria-selected', name === now);
    button.tabIndex = name === now ? 0 : -1;
  }
  // Only some views are searched, and one is sorted.
  $('search').parentNode.hidden = now === 'store';
  $('filter').parentNode.hidden = $('sort').parentNode.hidden = now !== 'locks';
  // A view with the focus inside keeps its buttons until the focus leaves.
  if (now === 'locks' || !$(now).contains(document.activeElement)) VIEWS[now]($(now));
  sum();
  if ($('one').open) drawOne();
}

function sum() {
  const now = performance.now(), all = [...locks.values()].filter((lock) => lock.doc);
  const endless = all.filter((lock) => risk(lock, now) === 'endless').length;
  const short = all.filter((lock) => risk(lock, now) === 'risk').length;
  const waits = all.reduce((sum, lock) => sum + lock.doc.queue.length, 0);
  const of = state.q || state.f ? `${shown.length} of ` : '';
  $('sum').textContent = `${of}${all.length} locks, ${waits} waiting, ${endless} that never end, ${short} with less than a third of the lease`;
  const unknown = Object.entries(last.unknown || {});
  const parts = ['Locks are listed from the index of the store. On Redis it has those that were renewed once or are waited for: a lock that was taken just now is missing, and so is a foreign lock that no Leasehold client waits for.'];
  if (last.hidden) parts.push(`${last.hidden} more names are not shown: this user may not read the keys (ACL).`);
  if (unknown.length) parts.push(`${unknown.length} are unknown: ${unknown.slice(0, 5).map(([name, why]) => `${name} (${why})`).join('; ')}${unknown.length > 5 ? '; …' : ''}.`);
  $('whole').textContent = parts.join(' ');
}

function choose(name) {
  chosen = name;
  const at = shown.findIndex((lock) => lock.name === name), list = $('list');
  if (at >= 0) {
    const top = at * height();
    if (top < list.scrollTop) list.scrollTop = top;
    if (top + height() > list.scrollTop + list.clientHeight) list.scrollTop = top + height() - list.clientHeight;
  }
  drawRows();
}

function move(by) {
  if (!shown.length) return;
  const at = shown.findIndex((lock) => lock.name === chosen);
  const next = at < 0 ? 0 : Math.min(shown.length - 1, Math.max(0, at + by));
  choose(shown[next].name);
}

function theme(next) {
  if (next) document.documentElement.dataset.theme = next;
  else delete document.documentElement.dataset.theme;
}

function otherTheme() {
  const isDark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  const next = isDark ? 'light' : 'dark';
  localStorage.setItem('theme', next);
  theme(next);
}

function keyOfList(event) {
  const page = Math.max(1, Math.floor($('list').clientHeight / height()) - 1);
  const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -1e9, End: 1e9 };
  if (event.key in moves) move(moves[event.key]);
  else if (event.key === 'Enter' && chosen !== null) open(chosen);
  else return false;
  event.preventDefault();
  return true;
}

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input, select')) return;
  if ($('end').open || $('help').open) return;
  const name = Object.keys(VIEWS)[Number(event.key) - 1];
  if (event.key === 'b' && $('one').open) askToBreak();
  else if (event.key === 't') otherTheme();
  else if ($('one').open) return;
  else if (event.key === '/') { if (state.tab === 'store') tab('locks'); $('search').focus(); }
  else if (event.key === '?') $('help').showModal();
  else if (name) { tab(name); (name === 'locks' ? $('list') : $(`tab-${name}`)).focus(); }
  else if (event.target === document.body && !$('locks').hidden && keyOfList(event)) $('list').focus();
  else return;
  event.preventDefault();
}

function keyOfTabs(event) {
  const names = Object.keys(VIEWS), at = names.indexOf(event.target.dataset.tab);
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!by || at < 0) return;
  event.preventDefault();
  const next = names[(at + by + names.length) % names.length];
  tab(next);
  $(`tab-${next}`).focus();
}

function start() {
  theme(localStorage.getItem('theme'));
  const given = new URLSearchParams(location.hash.slice(1)).get('t');
  token = given || sessionStorage.getItem('token') || '';
  // Out of the address, so that a link that is sent has no token.
  if (location.hash) history.replaceState(null, '', location.pathname + location.search);
  [$('search').value, $('filter').value, $('sort').value] = [state.q, state.f, state.s];
  rowHeight = parseInt(getComputedStyle(document.documentElement).getPropertyValue('--row'), 10) || 40;
  matchMedia('(max-width: 640px)').addEventListener('change', () => {
    rowHeight = parseInt(getComputedStyle(document.documentElement).getPropertyValue('--row'), 10) || 40;
    drawRows();
  });
  $('search').addEventListener('input', () => { state.q = $('search').value; draw(); });
  $('filter').addEventListener('change', () => { state.f = $('filter').value; draw(); });
  $('sort').addEventListener('change', () => { state.s = $('sort').value; draw(); });
  $('search').addEventListener('keydown', (event) => { if (event.key === 'ArrowDown' || event.key === 'Enter') { event.preventDefault(); $('list').focus(); move(0); } });
  document.querySelector('[role="tablist"]').addEventListener('click', (event) => { if (event.target.dataset.tab) tab(event.target.dataset.tab); });
  document.querySelector('[role="tablist"]').addEventListener('keydown', keyOfTabs);
  $('list').addEventListener('scroll', drawRows);
  $('list').addEventListener('keydown', keyOfList);
  addEventListener('resize', drawRows);
  $('theme').addEventListener('click', otherTheme);
  $('keys').addEventListener('click', () => $('help').showModal());
  $('one').addEventListener('close', () => { state.lock = ''; $('list').focus(); });
  $('one-break').addEventListener('click', askToBreak);
  $('end-form').addEventListener('submit', breakIt);
  for (const button of document.querySelectorAll('[data-close]')) button.addEventListener('click', () => button.closest('dialog').close());
  $('ask').addEventListener('submit', (event) => { event.preventDefault(); token = $('token').value.trim(); listen(); });
  addEventListener('keydown', key);
  document.addEventListener('visibilitychange', visible);
  draw();
  listen();
}

start();
