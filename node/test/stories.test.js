// The stories of `stories.json`, by this package in real processes.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { LONG, breakLock, skip, startActor, startServer } from './common.js';

const stories = JSON.parse(readFileSync(new URL('stories.json', import.meta.url)));

async function play(t, steps) {
  const server = await startServer(t);
  const actors = new Map();
  const fences = new Map();
  const locks = new Map();
  const operator = {
    kill: ({ whom }) => actors.get(whom).kill(),
    leave: ({ whom }) => actors.get(whom).leave(),
    break: ({ lock }) => breakLock(server.url, lock),
    stop: () => server.stop(),
  };
  for (const [place, { operator: verb, who, is, ...order }] of steps.entries()) {
    if (verb) {
      await operator[verb](order);
      continue;
    }
    if (!actors.has(who)) actors.set(who, startActor(t, server.url));
    const { slot, as = order.lock } = order;
    if (order.lock) locks.set(`${who} ${as}`, order.lock);
    if (order.do) actors.get(who).say({ ttl: LONG, ...order, as });
    if (!is) continue;
    let answer = await actors.get(who).answer(as);
    if (answer.is === 'waiting' && is !== 'waiting') answer = await actors.get(who).answer(as);
    const step = `step ${place + 1}: ${JSON.stringify(steps[place])}`;
    assert.equal(answer.is, is, step);
    if (is !== 'held') continue;
    if (slot !== undefined) assert.equal(answer.slot, slot, step);
    if (answer.mode !== 'exclusive') continue;
    const lock = locks.get(`${who} ${as}`);
    assert.ok(answer.fence > (fences.get(lock) ?? 0), `${step}: the fence is ${answer.fence} after ${fences.get(lock)}`);
    fences.set(lock, answer.fence);
  }
}

for (const { story, steps } of stories) test(story, { skip }, (t) => play(t, steps));
