// node rhea.js publish|subscribe '{"urls": ..., "name": ..., "history": ...}': what a careful user of rhea writes.
// The options are those of `python -m chaos.live.clients`; so are READY, DONE and the history.  Needs NODE_PATH to find rhea.
'use strict';
const fs = require('fs');
const rhea = require('rhea');

const LINK = 'chaos';
const what = process.argv[2];
const args = JSON.parse(process.argv[3]);
const role = what === 'publish' ? 'p' : 's';
const who = {[role]: args.name};
const modes = {
  second: {snd_settle_mode: 0, rcv_settle_mode: 1},
  first: {snd_settle_mode: 0, rcv_settle_mode: 0},
  presettled: {snd_settle_mode: 1, rcv_settle_mode: 0},
}[args.settle];

const file = fs.openSync(args.history, 'a');
const now = () => Number(process.hrtime.bigint()) / 1e9; // CLOCK_MONOTONIC, as Python's time.monotonic()
const write = (op, fields) => fs.writeSync(file, JSON.stringify({op, ...fields, t: Number(now().toFixed(6))}) + '\n');
const say = (word) => fs.writeSync(1, word + '\n');

const container = rhea.create_container({id: args.name});
let attempts = 0;
let failures = 0;
let ready = false;
let ending = false;
let connection = null;
let link = null;

const read = (file) => (file ? fs.readFileSync(file, 'utf8') : undefined);
const login = !args.ca ? {} : {
  transport: 'tls', ca: read(args.ca), cert: read(args.certificate), key: read(args.certificate),
  ...(args.password_file ? {username: args.name, password: read(args.password_file).trim()} : {}),
};

function connect() {
  const url = new URL(args.urls.split(',')[attempts++ % args.urls.split(',').length]);
  const where = {host: url.hostname, port: Number(url.port), reconnect: false, idle_time_out: 4000};
  connection = container.connect({...where, ...login});
  link = null;
  if (role === 'p') {
    again = [...undecided];
    connection.open_sender({
      name: LINK, target: {address: args.address}, ...modes, autosettle: false,
      properties: {'onceway:unique-tags': true},
    });
  } else {
    connection.open_receiver({
      name: LINK, source: {address: args.address, timeout: Math.trunc(args.timeout)}, ...modes,
      autosettle: false, autoaccept: false, credit_window: args.credit,
    });
  }
}

function lost(context, why) {
  if (context.connection !== connection || ending) return;
  connection = link = null;
  write('note', {text: `lost: ${why || 'disconnected'}`, ...who});
  setTimeout(connect, Math.min(1000, 50 * 2 ** Math.min(failures++, 8)));
}

function opened(context) {
  const opening = context[role === 'p' ? 'sender' : 'receiver'];
  if (context.connection !== connection || !(role === 'p' ? opening.target : opening.source).address) return;
  link = opening;
  failures = 0;
  const properties = link.remote.attach.properties || {};
  const resumed = properties['onceway:resumed'];
  write('attached', {router: context.connection.container_id, resumed: resumed === undefined ? null : resumed, ...who});
  if (role === 's' && (!ready || resumed === false)) {
    if (ready) write('told', {why: 'the attach was answered with onceway:resumed = false', ...who});
    write('ready', who);
  }
  if (!ready) {
    ready = true;
    say('READY');
  }
}

function end() {
  ending = true;
  write('close', who);
  if (link) link.close();
  if (connection) connection.close();
  else process.exit(0);
}

container.on('sender_open', opened);
container.on('receiver_open', opened);
container.on('disconnected', (context) => (ending ? process.exit(0) : lost(context, context.error)));
container.on('connection_close', (context) => (ending ? process.exit(0) : lost(context, context.connection.error)));
container.on('connection_error', (context) => lost(context, context.connection.error));
container.on('session_error', (context) => context.connection.close());
for (const kind of ['sender', 'receiver']) {
  container.on(`${kind}_error`, (context) => {
    const error = context[kind].error;
    if (role === 's' && error && error.condition === 'onceway:subscription-broken') {
      write('told', {why: String(error.description), ...who});
      ready = false;
    }
  });
  container.on(`${kind}_close`, (context) => {
    if (ending || context.connection !== connection) return;
    context.connection.close();
    lost(context, context[kind].error);
  });
}
container.on('error', (error) => console.error(String(error)));

// --- publisher: what has no outcome is sent again, in order, before anything new
const undecided = new Set();
let again = [];
let next = 0;
let started = 0;
let enough = false;
const timeUp = () => enough || (args.duration !== null && now() >= started + args.duration);

function body(number) {
  return rhea.message.data_section(Buffer.from(`${args.name} ${number} `.padEnd(args.size, '.')));
}

function send(number) {
  link.send({body: body(number)}, Buffer.from(String(number)));
}

function tick() {
  if (ending) return;
  if (link && link.credit > 0) {
    started = started || now();
    let room = link.credit;
    for (; room > 0 && again.length && link.sendable(); room--) send(again.shift());
    let due = Math.trunc((now() - started) * args.rate) + 1;
    if (args.count !== null) due = Math.min(due, args.count);
    else if (timeUp()) due = next;
    for (; room > 0 && !again.length && next < due && link.sendable(); room--) {
      write('send', {p: args.name, n: next});
      if (args.settle !== 'presettled') undecided.add(next);
      send(next++);
    }
  }
  const over = args.count !== null ? next === args.count : started && timeUp();
  const outgoing = link && link.session.outgoing; // what waits in rhea's own buffer, a close would drop
  if (over && !undecided.size && link && outgoing.next_pending_delivery === outgoing.next_delivery_id && !ending) {
    say('DONE');
    end();
  }
}

function decided(outcome) {
  return (context) => {
    const number = Number(context.delivery.tag.toString());
    if (undecided.delete(number)) write('outcome', {p: args.name, n: number, outcome});
    if (!context.delivery.settled) context.delivery.update(true);
  };
}
if (role === 'p') {
  container.on('accepted', decided('accepted'));
  for (const other of ['rejected', 'released', 'modified']) container.on(other, decided('rejected'));
  process.on('SIGTERM', () => (enough = true));
  setInterval(tick, 5);
}

// --- subscriber: repeats are dropped by delivery-tag; settled when the router has settled
const seen = new Set();
if (role === 's') {
  container.on('message', (context) => {
    const tag = context.delivery.tag.toString('hex');
    if (!seen.has(tag)) {
      seen.add(tag);
      const [publisher, number] = Buffer.from(context.message.body.content).toString('latin1').split(' ', 2);
      write('receive', {s: args.name, p: publisher, n: Number(number)});
      if (args.pause) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, args.pause * 1000);
      write('accept', {s: args.name, p: publisher, n: Number(number)});
    }
    if (!context.delivery.remote_settled) {
      context.delivery.update(args.settle !== 'second', rhea.message.accepted().described());
    }
  });
  container.on('settled', (context) => {
    if (!context.delivery.settled) context.delivery.update(true);
  });
  process.on('SIGTERM', end);
}

write('start', who);
connect();
