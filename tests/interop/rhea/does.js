// A client in rhea-promise, or in @azure/core-amqp, whose connection is one of rhea-promise;
// tests/interop/test_clients.py says what `node does.js CLIENT WHAT NAME=VALUE...` does.
'use strict';
const fs = require('fs');
const {Connection, ConnectionEvents, ReceiverEvents, SenderEvents, message: encoding, filter} = require('rhea-promise');
const [client, what, ...given] = process.argv.slice(2);
const options = Object.fromEntries(given.map((each) => [each.split('=')[0], each.slice(each.indexOf('=') + 1)]));
const count = Number(options.count || 1);
const places = options.at.split(',');
const addresses = (options.address || '').split(',');
const MODES = {
  'unsettled': {snd_settle_mode: 0, rcv_settle_mode: 0},
  'pre-settled': {snd_settle_mode: 1, rcv_settle_mode: 0},
  'second': {snd_settle_mode: 0, rcv_settle_mode: 1},
};
const modes = MODES[options.mode || 'unsettled'];
const WEB = options.ws ? require('ws') : undefined;

async function connected(place) {
  const [host, port] = place.split(':');
  if (client === 'core') {
    const {ConnectionContextBase} = require('@azure/core-amqp');
    const config = {
      host, port: Number(port), endpoint: `sb://${place}/`, connectionString: 'none', entityPath: 'none',
      sharedAccessKeyName: options.user || 'anonymous', sharedAccessKey: 'none', useDevelopmentEmulator: !options.ca,
      webSocket: WEB, webSocketConstructorOptions: WEB && {ca: fs.readFileSync(options.ca)},
    };
    const about = {product: 'does', version: '1', userAgent: 'does'};
    const {connection} = ConnectionContextBase.create({config, connectionProperties: about});
    return await connection.open();
  }
  const settings = {host, port: Number(port), reconnect: false};
  const ca = options.ca && [fs.readFileSync(options.ca)];
  if (WEB) settings.webSocketOptions = {webSocket: WEB, url: `wss://${place}`, protocol: ['amqp'], options: {ca}};
  else if (ca) Object.assign(settings, {transport: 'tls', ca});
  if (options.user) Object.assign(settings, {username: options.user, password: options.password});
  if (options.certificate) {
    const pem = fs.readFileSync(options.certificate);
    Object.assign(settings, {cert: pem, key: pem, enable_sasl_external: true});
  }
  return await new Connection(settings).open();
}

function body(number) {
  if (!options.size) return `message ${number}`;
  const octets = Buffer.alloc(Number(options.size));
  for (let n = 0; n < octets.length; n++) octets[n] = n % 251;
  return encoding.data_section(octets);
}

function shown({body}) {
  const octets = body && body.content;
  return Buffer.isBuffer(octets) ? `${octets.length} ${octets.reduce((sum, each) => sum + each, 0)}` : String(body);
}

const outcome = (error) => ((error.innerError || error).condition ? 'rejected' : 'not accepted');

const DOES = {
  async open() {
    const connection = await connected(places[0]);
    console.log(`connected ${JSON.stringify(connection._connection.remote.open.properties)}`);
    await connection.close();
  },
  async send() {
    const connection = await connected(places[0]);
    const link = {target: {address: addresses[0]}, ...modes};
    if (options.mode === 'pre-settled') {
      const sender = await connection.createSender(link);
      if (!sender.credit) await new Promise((resolve) => sender.once(SenderEvents.sendable, resolve));
      for (let number = 0; number < count; number++) {
        sender.send({body: body(number)});
        console.log('sent');
      }
      await new Promise((resolve) => setInterval(resolve, 1e6)); // its buffer is written; whoever reads us ends us
    }
    const sender = await connection.createAwaitableSender(link);
    for (let number = 0; number < count; number++) {
      const delivery = await sender.send({body: body(number)}, {timeoutInSeconds: 60});
      console.log('accepted');
      if (!delivery.settled) delivery.update(true);
    }
    await connection.close();
  },
  async again() {
    let number = 0;
    for (const place of places) {
      try {
        const connection = await connected(place);
        const lost = new Promise((_, reject) => connection.once(ConnectionEvents.disconnected, reject));
        lost.catch(() => undefined);
        const sender = await connection.createAwaitableSender({target: {address: addresses[0]}});
        for (; number < count; number++) {
          await Promise.race([lost, sender.send({body: body(number)}, {timeoutInSeconds: 60})]);
          console.log('accepted');
        }
        process.exit(0);
      } catch (error) {
        console.log('again');
      }
    }
  },
  async anonymous() {
    const connection = await connected(places[0]);
    const sender = await connection.createAwaitableSender({target: {}});
    for (const [number, to] of addresses.entries()) {
      await sender.send({to, body: body(number)}).then(() => console.log(to, 'accepted'), (error) => console.log(to, outcome(error)));
    }
    await connection.close();
  },
  async receive() {
    const connection = await connected(places[0]);
    let received = 0;
    const onMessage = ({message}) => {
      console.log(shown(message));
      if (++received === count) setTimeout(() => connection.close(), 100);
    };
    const source = {address: addresses[0], filter: options.selector && filter.selector(options.selector)};
    await connection.createReceiver({source, ...modes, onMessage, onError: console.error});
    console.log('attached');
  },
  async drain() {
    const connection = await connected(places[0]);
    let received = 0;
    const onMessage = ({message}) => { received++; console.log(shown(message)); };
    const link = {source: {address: addresses[0]}, credit_window: 0, onMessage, onError: console.error};
    const receiver = await connection.createReceiver(link);
    while (received < count) {
      const drained = new Promise((resolve) => receiver.once(ReceiverEvents.receiverDrained, resolve));
      receiver.addCredit(10);
      receiver.drainCredit();
      await drained;
    }
    console.log('drained');
    await connection.close();
  },
  async request() {
    const connection = await connected(places[0]);
    let replied;
    const onMessage = ({message}) => replied(shown(message));
    const receiver = await connection.createReceiver({source: {dynamic: true}, onMessage, onError: console.error});
    const sender = await connection.createAwaitableSender({target: {address: addresses[0]}});
    for (let number = 0; number < count; number++) {
      const reply = new Promise((resolve) => { replied = resolve; });
      sender.send({body: body(number), reply_to: receiver.address || receiver._link.source.address});
      console.log(await reply);
    }
    await connection.close();
  },
};
DOES[what]().then(() => what === 'receive' || process.exit(0), (error) => {
  console.log(`refused: ${error.description || error.message || error}`);
  process.exit(0);
});
