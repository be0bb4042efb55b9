'use strict'
// The Node.js peers for ../peer.rs: redlock 4, redlock 5 and redis-semaphore. They lock one server, or a majority of several.
const fs = require('fs')
const path = require('path')
const readline = require('readline')
const { Redis } = require('ioredis')

const [client, nodes, counter] = process.argv.slice(2)
const ports = nodes.split(',')
const isQuorum = ports.length > 1
// By default ioredis keeps the commands for a server that is down, and a library that awaits all answers hangs.
const patience = isQuorum ? { enableOfflineQueue: false, maxRetriesPerRequest: 0 } : {}
const connect = (port, options) => new Redis({ port: Number(port), host: '127.0.0.1', lazyConnect: true, ...options })
const servers = ports.map((port) => connect(port, patience))
const redis = isQuorum ? connect(counter) : servers[0]
servers.forEach((server) => server.on('error', () => {}))
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
const waiting = { retryCount: -1, retryDelay: 10, retryJitter: 5 }
const once = { retryCount: 0 }

function redlock (Redlock, acquire, release) {
  const make = (settings) => {
    const locks = new Redlock(servers, settings)
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
    const { Mutex, RedlockMutex } = require('redis-semaphore')
    const make = (name, options) => isQuorum ? new RedlockMutex(servers, name, options) : new Mutex(redis, name, options)
    let lock
    return {
      async take (name, ttl, wait) {
        lock = make(name, { lockTimeout: ttl, refreshInterval: 0, acquireTimeout: wait ? 600000 : 5000, acquireAttemptsLimit: wait ? Infinity : 1, retryInterval: 10 })
        if (wait) { await lock.acquire(); return true }
        return lock.tryAcquire()
      },
      // It does not report a lost lock.
      async release () { await lock.release(); return true }
    }
  }
}
const peer = peers[client]()

// While redlock 5 retries, it keeps the votes that it has until their TTL ends. They block its own next attempt, and others.
async function take (name, ttl) {
  if (!isQuorum || client !== 'redlock-5') return peer.take(name, ttl, true)
  while (!await peer.take(name, ttl, false)) await sleep(5 + Math.random() * 10)
  return true
}

async function count (name, ttl, turns, who) {
  // Reads, adds one and writes, in separate commands.
  for (let turn = 1; turn <= turns; turn++) {
    await take(name, ttl)
    const [count, last, changes, enough] = await redis.mget('count', 'last', 'changes', 'enough')
    if (enough) return peer.release()
    await redis.mset('count', Number(count) + 1, 'last', who, 'changes', Number(changes) + (last !== who ? 1 : 0), 'by:' + who, turn)
    // A release is not confirmed if the node with the deciding vote has just ended. The counter shows whether that did harm.
    if (!await peer.release() && !isQuorum) throw new Error('lost while it counted')
    await sleep(1 + Math.random() * 3)
  }
}

async function main () {
  await Promise.allSettled(servers.map((server) => server.connect()))
  const folder = { 'redlock-4': 'redlock', 'redlock-5': 'redlock5' }[client] || client
  const file = path.join(process.env.NODE_PATH, folder, 'package.json')
  console.log('ready', JSON.parse(fs.readFileSync(file)).version)
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [verb, name, ttl, turns, who] = line.split(' ')
    if (verb === 'release') console.log(await peer.release() ? 'released' : 'lost')
    else if (verb === 'count') { await count(name, Number(ttl), Number(turns), who); console.log('counted') } else if (verb === 'wait') console.log(await take(name, Number(ttl)) ? 'held' : 'busy')
    // By the retries of the library.
    else console.log(await peer.take(name, Number(ttl), verb === 'retry') ? 'held' : 'busy')
  }
  process.exit(0)
}
main().catch((error) => { console.error(error); process.exit(1) })
