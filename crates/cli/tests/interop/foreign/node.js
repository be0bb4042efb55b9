'use strict'
// The Node.js peers for ../peer.rs: redlock 4, redlock 5 and redis-semaphore.
const fs = require('fs')
const path = require('path')
const readline = require('readline')
const { Redis } = require('ioredis')

const [client, port] = process.argv.slice(2)
const redis = new Redis({ port: Number(port), host: '127.0.0.1' })
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
const waiting = { retryCount: -1, retryDelay: 10, retryJitter: 5 }
const once = { retryCount: 0 }

function redlock (Redlock, acquire, release) {
  const make = (settings) => {
    const locks = new Redlock([redis], settings)
    locks.on('error', () => {})
    locks.on('clientError', () => {})
    return locks
  }
  const patient = make(waiting)
  const hasty = make(once)
  let lock
  return {
    async take (name, ttl, wait) {
      try { lock = await acquire(wait ? patient : hasty, name, ttl); return true } catch (error) { if (!/Locked|Execution|Lock/.test(error.name)) throw error; return false }
    },
    async release () { try { await release(lock); return true } catch (error) { return false } }
  }
}

const peers = {
  'redlock-4': () => redlock(require('redlock'), (locks, name, ttl) => locks.lock(name, ttl), (lock) => lock.unlock()),
  'redlock-5': () => redlock(require('redlock5').default, (locks, name, ttl) => locks.acquire([name], ttl), (lock) => lock.release()),
  'redis-semaphore': () => {
    const { Mutex } = require('redis-semaphore')
    let lock
    return {
      async take (name, ttl, wait) {
        lock = new Mutex(redis, name, { lockTimeout: ttl, refreshInterval: 0, acquireTimeout: wait ? 600000 : 5000, acquireAttemptsLimit: wait ? Infinity : 1, retryInterval: 10 })
        if (wait) { await lock.acquire(); return true }
        return lock.tryAcquire()
      },
      // It does not report a lost lock.
      async release () { await lock.release(); return true }
    }
  }
}
const peer = peers[client]()

async function count (name, ttl, turns, who) {
  // Reads, adds one and writes, in separate commands.
  for (let turn = 1; turn <= turns; turn++) {
    await peer.take(name, ttl, true)
    const [count, last, changes] = await redis.mget('count', 'last', 'changes')
    await redis.mset('count', Number(count) + 1, 'last', who, 'changes', Number(changes) + (last !== who ? 1 : 0), 'by:' + who, turn)
    if (!await peer.release()) throw new Error('lost while it counted')
    await sleep(1 + Math.random() * 3)
  }
}

async function main () {
  const folder = { 'redlock-4': 'redlock', 'redlock-5': 'redlock5' }[client] || client
  const file = path.join(process.env.NODE_PATH, folder, 'package.json')
  console.log('ready', JSON.parse(fs.readFileSync(file)).version)
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [verb, name, ttl, turns, who] = line.split(' ')
    if (verb === 'release') console.log(await peer.release() ? 'released' : 'lost')
    else if (verb === 'count') { await count(name, Number(ttl), Number(turns), who); console.log('counted') } else console.log(await peer.take(name, Number(ttl), verb === 'wait') ? 'held' : 'busy')
  }
  process.exit(0)
}
main().catch((error) => { console.error(error); process.exit(1) })
