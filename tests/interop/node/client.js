// A foreign client in JavaScript (kafkajs): produce or consume numbered records, for test_interop_clients.py.
//
//   node client.js produce BOOTSTRAP TOPIC COUNT CODEC     (kafkajs itself speaks none and gzip)
//   node client.js consume BOOTSTRAP TOPIC COUNT GROUP     prints one JSON object a record, commits and leaves
//
// The environment may have SECURITY_CA, SECURITY_CERTIFICATE and SECURITY_KEY (PEM files), and SECURITY_MECHANISM,
// SECURITY_USER and SECURITY_PASSWORD; or SECURITY_TOKEN, for OAUTHBEARER without TLS.
const fs = require('fs')
const { Kafka, CompressionTypes, logLevel } = require('kafkajs')

async function produce(kafka, topic, count, codec) {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  const compression = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }[codec]
  for (let start = 0; start < count; start += 100) {
    const messages = []
    for (let i = start; i < Math.min(start + 100, count); i++) {
      messages.push({ key: `key-${i}`, value: `js-${i}`, headers: { n: String(i) } })
    }
    await producer.send({ topic, messages, compression, acks: -1 })
  }
  await producer.disconnect()
}

async function consume(kafka, topic, count, groupId) {
  const consumer = kafka.consumer({ groupId })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  let seen = 0
  const lines = []
  const next = {}
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, e => reject(e.payload.error))
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        lines.push(JSON.stringify({
          key: String(message.key), value: String(message.value), partition, offset: Number(message.offset),
          headers: Object.keys(message.headers || {}).length,
        }))
        next[partition] = String(BigInt(message.offset) + 1n)
        if (++seen === count) resolve()
      },
    })
  })
  await consumer.commitOffsets(Object.entries(next).map(([p, offset]) => ({ topic, partition: Number(p), offset })))
  await consumer.disconnect()
  console.log(lines.join('\n'))
}

function secured(env) {
  if (env.SECURITY_TOKEN) {
    const oauthBearerProvider = async () => ({ value: env.SECURITY_TOKEN })
    return { sasl: { mechanism: 'oauthbearer', oauthBearerProvider } }
  }
  if (!env.SECURITY_CA) return {}
  const ssl = { ca: [fs.readFileSync(env.SECURITY_CA)] }
  if (env.SECURITY_CERTIFICATE) {
    ssl.cert = fs.readFileSync(env.SECURITY_CERTIFICATE)
    ssl.key = fs.readFileSync(env.SECURITY_KEY)
  }
  if (!env.SECURITY_MECHANISM) return { ssl }
  const mechanism = env.SECURITY_MECHANISM.toLowerCase()
  return { ssl, sasl: { mechanism, username: env.SECURITY_USER, password: env.SECURITY_PASSWORD } }
}

const [mode, bootstrap, topic, count, last] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'interop-js', brokers: [bootstrap], logLevel: logLevel.ERROR, ...secured(process.env) })
const run = mode === 'produce' ? produce : consume
run(kafka, topic, Number(count), last).then(() => process.exit(0), e => { console.error(e); process.exit(1) })
