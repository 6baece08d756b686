// pg-boss: node pgboss.mjs URL ACTION COUNT CLIENTS, answers with one JSON line (see __init__.py).
import PgBoss from 'pg-boss'

const [url, action, count, clients] = [process.argv[2], process.argv[3], +process.argv[4], +process.argv[5]]
const QUEUE = 'bench'
const BATCH = 1000

const boss = new PgBoss({ connectionString: url, max: Math.max(clients, 4), supervise: false, schedule: false })
boss.on('error', error => { console.error(error.message); process.exit(1) })
await boss.start()

const seconds = () => performance.timeOrigin / 1000 + performance.now() / 1000

async function enqueue () {
  await Promise.all(Array.from({ length: clients }, () => boss.send(QUEUE, { n: 0 }))) // connections are open now
  let left = count
  const one = async () => { while (left-- > 0) await boss.send(QUEUE, { n: left }) }
  const began = seconds()
  await Promise.all(Array.from({ length: clients }, one))
  return { seconds: seconds() - began }
}

async function bulk () {
  const began = seconds()
  for (let made = 0; made < count; made += BATCH) {
    await boss.insert(Array.from({ length: BATCH }, (_, n) => ({ name: QUEUE, data: { n } })))
  }
  return { seconds: seconds() - began }
}

async function drain () {
  let first = null; let last = null; let done = 0
  const work = async job => { done += job.data ? 1 : 0 }
  for (;;) {
    const jobs = await boss.fetch(QUEUE, { batchSize: BATCH })
    if (!jobs || jobs.length === 0) break
    first ??= seconds()
    await Promise.all(jobs.map(work)) // as its own worker calls a handler
    await boss.complete(QUEUE, jobs.map(job => job.id))
    last = seconds()
  }
  return { first, last, done }
}

async function latency () {
  const late = []
  const worker = await boss.work(QUEUE, { pollingIntervalSeconds: 0.5 }, async ([job]) => { late.push(seconds() - job.data.at) })
  for (let n = 0; n < count; n++) {
    await boss.send(QUEUE, { at: seconds() })
    boss.notifyWorker(worker)
    await new Promise(resolve => setTimeout(resolve, 20))
  }
  while (late.length < count) await new Promise(resolve => setTimeout(resolve, 50))
  return { late }
}

if (action === 'prepare') { await boss.createQueue(QUEUE); console.log('{}') } else {
  console.log(JSON.stringify(await { enqueue, bulk, drain, latency }[action]()))
}
await boss.stop({ graceful: false })
process.exit(0)
