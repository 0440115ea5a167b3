// What publish.js, subscribe.js and links.js share: containers, modes, the messages, and one JSON form of a received message.
'use strict';
const rhea = require('rhea');
const t = rhea.types;

const MODES = {
  'unsettled': {snd_settle_mode: 0, rcv_settle_mode: 0},
  'pre-settled': {snd_settle_mode: 1, rcv_settle_mode: 0},
  'second': {snd_settle_mode: 0, rcv_settle_mode: 1},
};

function pattern(size) {
  const buffer = Buffer.alloc(size);
  for (let i = 0; i < size; i++) buffer[i] = i % 251;
  return buffer;
}

const data = (size) => rhea.message.data_section(pattern(size));

// name -> message; every body type, sizes from nothing, all sections.
function messages() {
  const all = {};
  for (const size of [0, 1, 100, 255, 256, 4096, 65536, 100000, 1000000]) all['data ' + size] = {body: data(size)};
  all['three data sections'] = {body: rhea.message.data_sections([pattern(0), pattern(3), pattern(300)])};
  all['a sequence'] = {body: rhea.message.sequence_section([1, 'two', null, [4, {five: 6}]])};
  all['two sequences'] = {body: rhea.message.sequence_sections([[1, 2], ['three']])};
  const values = {
    'null': null, 'true': true, 'false': false, 'string': 'grüße \u{1f680}', 'number': 42, 'real': -2.5,
    'list': [1, 'two', [3]], 'map': {a: 1, b: {c: [1, 2, 3]}}, 'buffer': Buffer.from('binary'),
    'ubyte': t.wrap_ubyte(255), 'ushort': t.wrap_ushort(65535), 'uint': t.wrap_uint(4294967295),
    'ulong': t.wrap_ulong(9007199254740991), 'byte': t.wrap_byte(-128), 'short': t.wrap_short(-32768),
    'int': t.wrap_int(-2147483648), 'long': t.wrap_long(-9007199254740991), 'float': t.wrap_float(1.5),
    'double': t.wrap_double(-1e300), 'timestamp': t.wrap_timestamp(1700000000123),
    'uuid': t.wrap_uuid(Buffer.from('0123456789abcdef0123456789abcdef', 'hex')), 'symbol': t.wrap_symbol('a-symbol'),
    'char': t.wrap_char(0x1f600), 'array': t.wrap_array([1, 2, 3], 0x71), 'binary': t.wrap_binary(pattern(1000)),
    'described': t.wrap_described([1, 2], 'example:point:list'),
  };
  for (const name of Object.keys(values)) all['value ' + name] = {body: values[name]};
  all['all sections'] = {
    durable: true, priority: 9, ttl: 60000, first_acquirer: false, delivery_count: 0,
    message_annotations: {'x-opt-first': 'one', 'x-opt-second': [1, {two: 3}]},
    message_id: 'id-1', user_id: 'user', to: 'to', subject: 'subject', reply_to: 'reply-to', correlation_id: 77,
    content_type: 'application/json', content_encoding: 'gzip', absolute_expiry_time: 1900000000000,
    creation_time: 1700000000000, group_id: 'group', group_sequence: 3, reply_to_group_id: 'reply-group',
    application_properties: {text: 'ä', number: -5, flag: true, none: null},
    body: rhea.message.data_section(Buffer.from('body')), footer: {'x-crc': 12345},
  };
  return all;
}

// One line of JSON: what rhea decodes from the encoded message, without the annotation that the network adds.
function line(message) {
  const seen = new WeakSet();
  const plain = {};
  for (const key of Object.keys(message).sort()) if (typeof message[key] !== 'function') plain[key] = message[key];
  const annotations = Object.assign({}, plain.message_annotations);
  delete annotations['x-opt-onceway-publisher'];
  delete plain.message_annotations;
  if (Object.keys(annotations).length) plain.message_annotations = annotations;
  return JSON.stringify(plain, (key, value) => {
    if (value && value.type === 'Buffer' && Array.isArray(value.data)) {
      const bytes = Buffer.from(value.data);
      return bytes.length > 64
        ? `${bytes.length} bytes ${require('crypto').createHash('md5').update(bytes).digest('hex')}`
        : bytes.toString('hex');
    }
    if (value && typeof value === 'object') {
      if (seen.has(value)) return 'again';
      seen.add(value);
    }
    return typeof value === 'bigint' ? value.toString() : value;
  });
}

// A container that ends the process with 1 after an error of its links, session or connection, and after what is in `bad`.
// lost(): whether a connection that is lost is an error.
function created(name, bad = [], lost = () => false) {
  const container = rhea.create_container({id: `rhea-${name}-${process.pid}`});
  for (const each of ['receiver_error', 'sender_error', 'session_error', 'connection_error', 'disconnected', ...bad]) {
    container.on(each, (context) => {
      if (each === 'disconnected' && !lost()) return;
      const link = context.sender || context.receiver;
      console.error(each, context.error || (link && link.error) || '');
      process.exit(1);
    });
  }
  return container;
}

// host: 127.0.0.1, or ws://127.0.0.1 for a WebSocket.
function connect(container, host, port) {
  if (!host.startsWith('ws')) return container.connect({host, port: Number(port), reconnect: false});
  const to = container.websocket_connect(require('ws'));
  return container.connect({connection_details: to(`${host}:${port}`, ['amqp']), reconnect: false});
}

module.exports = {rhea, connect, created, MODES, messages, line, pattern};
