'use strict'
// How long the child of the Node package takes to start, beside a start of the command that does nothing. It needs a server at LEASEHOLD_URL
// (default: redis://127.0.0.1), and the command in PATH or in LEASEHOLD. See ../README.md.
const { spawnSync } = require('child_process')
const url = process.env.LEASEHOLD_URL || 'redis://127.0.0.1'
const TIMES = 41

async function main () {
  const { Client } = await import('../../node/index.js')
  const took = { 'until the client is connected': [], 'the end of the client': [], 'leasehold --version': [] }
  const [connected, ended, nothing] = Object.values(took)
  for (let turn = 0; turn < TIMES + 2; turn++) {
    const begun = performance.now()
    const client = await Client.connect(url)
    const ready = performance.now()
    await client.close()
    const closed = performance.now()
    spawnSync(process.env.LEASEHOLD || 'leasehold', ['--version'])
    if (turn < 2) continue // the first runs fill caches
    connected.push(ready - begun)
    ended.push(closed - ready)
    nothing.push(performance.now() - closed)
  }
  console.log(`| ${TIMES} times | median ms | 10 % to 90 % |\n|---|--:|--:|`)
  for (const [what, times] of Object.entries(took)) {
    const at = (part) => times[Math.round((TIMES - 1) * part)].toFixed(1)
    times.sort((one, other) => one - other)
    console.log(`| ${what} | ${at(0.5)} | ${at(0.1)} to ${at(0.9)} |`)
  }
}
main()
