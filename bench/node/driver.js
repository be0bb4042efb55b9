'use strict'
// The Node peers: peer=leasehold|redlock4|redlock5|redis_semaphore, with their own defaults.
const { cfg, main } = require('./common')
// The packages are in the cache, not beside this file; the benchmark sets NODE_PATH.
const { Redis } = require('ioredis')
const clients = cfg.ports.map((port) => new Redis({ port, host: '127.0.0.1' }))
const [client] = clients
// A server that stops mid-run is part of a workload.
for (const one of clients) one.on('error', () => {})

const peers = {
  async leasehold () {
    const { Client } = await import('../../node/index.js')
    const locks = await Client.connect(`redis://127.0.0.1:${cfg.ports[0]}`, { ttl: cfg.ttl })
    return { acquire: (w, key) => locks.mutex(key).acquire(), release: (lease) => lease.release(), hold: (key) => locks.mutex(key, { ttl: 120000 }).acquire() }
  },
  redlock4 () { // retryCount 10, retryDelay 200 ms, retryJitter 100 ms
    const Redlock = require('redlock')
    const locks = new Redlock(clients)
    return { acquire: (w, key) => locks.acquire(key, cfg.ttl), release: (lock) => lock.unlock(), hold: (key) => locks.acquire(key, 120000) }
  },
  redlock5 () {
    const Redlock = require('redlock5').default
    const locks = new Redlock(clients)
    locks.on('error', () => {})
    const names = (key, cycle) => cfg.several ? [...cfg.several[cycle % cfg.several.length]].map((digit) => `${key}:${digit}`) : [key]
    return { acquire: (w, key, cycle) => locks.acquire(names(key, cycle), cfg.ttl), release: (lock) => lock.release(), hold: (key) => locks.acquire([key], 120000) }
  },
  redis_semaphore () { // retryInterval 10 ms
    const { Mutex, RedlockMutex, Semaphore } = require('redis-semaphore')
    const mutex = (key, options) => {
      const own = { lockTimeout: cfg.ttl, acquireTimeout: 3600000, ...options }
      if (cfg.slots > 1) return new Semaphore(client, key, cfg.slots, own)
      return clients.length > 1 ? new RedlockMutex(clients, key, own) : new Mutex(client, key, own)
    }
    return {
      acquire: async (w, key) => { const lock = mutex(key); await lock.acquire(); return lock },
      release: (lock) => lock.release(),
      hold: (key) => mutex(key, { lockTimeout: 120000 }).acquire()
    }
  }
}
Promise.resolve(peers[cfg.peer]()).then(main).catch((error) => { console.error(error); process.exit(1) })
