// Graphile Worker: node graphile.mjs URL ACTION COUNT CLIENTS, answers with one JSON line (see __init__.py).
import { Logger, makeWorkerUtils, run } from 'graphile-worker'
import pg from 'pg'

const [url, action, count, clients] = [process.argv[2], process.argv[3], +process.argv[4], +process.argv[5]]
const TASK = 'bench'
const BATCH = 1000
const logger = new Logger(() => () => {})

const pool = new pg.Pool({ connectionString: url, max: Math.max(clients, 30) })
pool.on('error', error => { console.error(error.message); process.exit(1) })
pool.on('connect', client => client.on('error', () => {}))
const utils = await makeWorkerUtils({ pgPool: pool, logger })
await utils.migrate()

const seconds = () => performance.timeOrigin / 1000 + performance.now() / 1000
const pause = ms => new Promise(resolve => setTimeout(resolve, ms))

async function enqueue () {
  await Promise.all(Array.from({ length: clients }, () => utils.addJob(TASK, { n: 0 }))) // connections are open now
  let left = count
  const one = async () => { while (left-- > 0) await utils.addJob(TASK, { n: left }) }
  const began = seconds()
  await Promise.all(Array.from({ length: clients }, one))
  return { seconds: seconds() - began }
}

async function bulk () {
  const began = seconds()
  for (let made = 0; made < count; made += BATCH) {
    await utils.addJobs(Array.from({ length: BATCH }, (_, n) => ({ identifier: TASK, payload: { n } })))
  }
  return { seconds: seconds() - began }
}

async function work (task, size) {
  const preset = { worker: { localQueue: { size }, completeJobBatchDelay: 0, failJobBatchDelay: 0 } }
  return run({ pgPool: pool, logger, concurrency: 24, noHandleSignals: true, crontab: '', taskList: { [TASK]: task }, preset })
}

async function drain () {
  let first = null; let last = null; let done = 0
  const runner = await work(async () => { first ??= seconds(); done++; last = seconds() }, 500)
  while ((await pool.query('SELECT 1 FROM graphile_worker._private_jobs LIMIT 1')).rowCount > 0) await pause(20)
  if (done > 0) last = Math.max(last, seconds() - 0.02)
  await runner.stop()
  return { first, last, done }
}

async function latency () {
  const late = []
  const runner = await work(async payload => { late.push(seconds() - payload.at) }, -1)
  await pause(500)
  for (let n = 0; n < count; n++) {
    await utils.addJob(TASK, { at: seconds() })
    await pause(20)
  }
  while (late.length < count) await pause(50)
  await runner.stop()
  return { late }
}

console.log(action === 'prepare' ? '{}' : JSON.stringify(await { enqueue, bulk, drain, latency }[action]()))
process.exit(0)
