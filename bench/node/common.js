'use strict'
// Shared code of the Node drivers. ../lockbench/runner.py has the protocol.
const fs = require('fs')
const readline = require('readline')
const now = () => Number(process.hrtime.bigint()) // CLOCK_MONOTONIC ns; < 2^53 for 104 days of uptime
const sleep = (ms) => new Promise((r) => setTimeout(r, ms))

const m = Object.fromEntries(process.argv.slice(2).filter((a) => a.includes('=')).map((a) => [a.slice(0, a.indexOf('=')), a.slice(a.indexOf('=') + 1)]))
const cfg = {
  peer: m.peer,
  mode: m.mode || 'loop',
  ports: (m.ports || m.port || '6379').split(',').map(Number),
  workers: Number(m.workers || 1),
  one: m.keys === 'one' || (m.mode || 'loop') !== 'loop',
  prefix: m.prefix || 'bench',
  secs: Number(m.secs || 5),
  cs: Number(m.cs_ms || 0),
  think: Number(m.think_ms || 0),
  ttl: Number(m.ttl_ms || 10000),
  log: m.log,
  slots: (m.take || '').startsWith('slot/') ? Number(m.take.slice(5)) : 1,
  several: /^\d/.test(m.take || '') ? m.take.split(',') : null
}
// How many workers may be inside at once.
const most = cfg.several ? Infinity : cfg.slots
cfg.key = (w) => (cfg.one ? `${cfg.prefix}:one` : `${cfg.prefix}:${w}`)

const rl = readline.createInterface({ input: process.stdin })
const lines = []
const waiters = []
rl.on('line', (l) => (waiters.length ? waiters.shift()(l) : lines.push(l)))
rl.on('close', () => process.exit(0))
const nextLine = () => (lines.length ? Promise.resolve(lines.shift()) : new Promise((r) => waiters.push(r)))

async function readyWait () {
  process.stdout.write('READY\n')
  const p = (await nextLine()).split(' ')
  return p[1] ? Number(p[1]) : now()
}
const pct = (v, p) => (v.length ? v[Math.round((v.length - 1) * p)] / 1000 : 0)

async function report (t0, recs, errors, sh) {
  const end = t0 + cfg.secs * 1e9
  const pair = []; const acq = []; const per = []
  for (const r of recs) {
    let n = 0
    for (const [q, a, r0, r1] of r) if (r1 <= end) { n++; pair.push(a - q + r1 - r0); acq.push(a - q) }
    per.push(n)
  }
  if (cfg.log) fs.writeFileSync(cfg.log, recs.map((r, w) => r.map((x) => `${x[0]} ${x[1]} ${x[2]} ${x[3]} ${w}\n`).join('')).join(''))
  pair.sort((x, y) => x - y); acq.sort((x, y) => x - y)
  process.stdout.write(JSON.stringify({
    ops: pair.length, secs: cfg.secs, pair_p50_us: pct(pair, 0.5), pair_p99_us: pct(pair, 0.99),
    acq_p50_us: pct(acq, 0.5), acq_p99_us: pct(acq, 0.99), acq_max_us: pct(acq, 1),
    acq_mean_us: acq.reduce((sum, x) => sum + x, 0) / 1000 / Math.max(1, acq.length),
    changes: sh.changes,
    violations: sh.violations, errors, min_worker: Math.min(...per, Infinity) === Infinity ? 0 : Math.min(...per), max_worker: Math.max(...per, 0)
  }) + '\n')
  await nextLine()
  process.exit(0)
}

exports.cfg = cfg
exports.main = async function main (peer) {
  const sh = { inside: 0, violations: 0, last: -1, changes: 0 }
  if (cfg.mode !== 'loop') {
    if (cfg.mode === 'idle') await peer.hold(cfg.key(0))
    for (let w = 0; w < cfg.workers; w++) {
      ;(async () => {
        for (;;) { try { await peer.release(await peer.acquire(w, cfg.key(0))) } catch (e) { await sleep(0) } }
      })()
    }
    await sleep(3000)
    const t0 = await readyWait()
    await sleep(cfg.secs * 1000)
    return report(t0, [], 0, sh)
  }
  await Promise.all([...Array(cfg.workers).keys()].map(async (w) => {
    const k = `${cfg.prefix}:warm:${process.pid}:${w}`
    for (let i = 0; i < 20; i++) await peer.release(await peer.acquire(w, k, i))
  }))
  const t0 = await readyWait()
  const end = t0 + cfg.secs * 1e9
  const recs = []; let errors = 0
  await Promise.all([...Array(cfg.workers).keys()].map(async (w) => {
    const out = (recs[w] = [])
    const d = (t0 - now()) / 1e6
    if (d > 0) await sleep(d)
    const key = cfg.key(w)
    let q = now()
    while (now() < end) {
      let g
      try { g = await peer.acquire(w, key, out.length) } catch (e) { errors++; continue }
      const a = now()
      if (cfg.one) {
        if (++sh.inside > most) sh.violations++
        if (sh.last !== w) { sh.last = w; if (a < end) sh.changes++ }
      }
      if (cfg.cs) await sleep(cfg.cs)
      if (cfg.one) sh.inside--
      const r0 = now()
      try { await peer.release(g) } catch (e) { errors++ }
      const r1 = now()
      out.push([q, a, r0, r1])
      if (cfg.think) await sleep(cfg.think * (0.5 + Math.random()))
      q = now()
    }
  }))
  return report(t0, recs, errors, sh)
}
