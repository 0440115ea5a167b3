// node types.js rhea|promise send|receive HOST:PORT ADDRESS TABLE
// Sends the values of TABLE (tests/interop/test_types.py says what they look like) and prints each message's octets in
// hexadecimal, or prints `attached` and each value that it has read. rhea-promise is another program around rhea's types.
'use strict';
const [client, role, place, address, path] = process.argv.slice(2);
const table = JSON.parse(require('fs').readFileSync(path));
const promise = client === 'promise' ? require('rhea-promise') : null;
const rhea = promise || require('rhea');
const t = rhea.types;
const [host, port] = place.split(':');
const BITS = {float: 4, double: 8};

function eight(number) {  // beyond what a number of JavaScript holds
  const octets = Buffer.alloc(8);
  octets.writeBigInt64BE(BigInt.asIntN(64, BigInt(number)));
  return octets;
}

function wrap([kind, text]) {
  switch (kind) {
    case 'null': return null;
    case 'boolean': return text === 'true';
    case 'float': return t.wrap_float(Buffer.from(text, 'hex').readFloatBE());
    case 'double': return t.wrap_double(Buffer.from(text, 'hex').readDoubleBE());
    case 'binary': return t.wrap_binary(Buffer.from(text, 'hex'));
    case 'uuid': return t.wrap_uuid(Buffer.from(text.replaceAll('-', ''), 'hex'));
    case 'string': return t.wrap_string(text);
    case 'symbol': return t.wrap_symbol(text);
    case 'list': return t.wrap_list(text.map(wrap));
    case 'map': return t.wrap_map(Object.fromEntries(text.map(([[, key], value]) => [key, wrap(value)])));
    case 'array': return t.wrap_array(text.map(([, each]) => text[0][0] === 'int' ? Number(each) : each), text[0][0] === 'int' ? 0x71 : 0xb1);
    case 'long': case 'ulong': return t['wrap_' + kind](Number.isSafeInteger(Number(text)) ? Number(text) : eight(text));
  }
  return t['wrap_' + kind](Number(text));
}

// In the shape of what was expected: rhea's values have lost their types.
function shape([kind, text], value) {
  switch (kind) {
    case 'float': case 'double': {
      const octets = Buffer.alloc(BITS[kind]);
      kind === 'float' ? octets.writeFloatBE(value) : octets.writeDoubleBE(value);
      return [kind, octets.toString('hex')];
    }
    case 'boolean': return [kind, String(Boolean(value))];  // rhea reads the octet of its long form as a number
    case 'binary': return [kind, value.toString('hex')];
    case 'uuid': return [kind, value.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-')];
    case 'timestamp': return [kind, String(value.getTime())];
    case 'list': case 'array': return [kind, value.map((each, index) => shape(text[index] || ['string'], each))];
    case 'map': return [kind, Object.entries(value).map(([key, each], index) => [['string', key], shape((text[index] || [])[1] || ['string'], each)])];
    case 'long': case 'ulong':
      if (Buffer.isBuffer(value)) return [kind, String(kind === 'long' ? value.readBigInt64BE() : value.readBigUInt64BE())];
  }
  return [kind, String(value ?? null)];  // rhea's body of null is undefined
}

const messages = table.map((value) => ({body: wrap(value)}));
let count = 0;
function read(context) {
  console.log(JSON.stringify(shape(table[count], context.message.body)));
  count++;
  if (count === table.length) setImmediate(() => context.connection.close());
}
function fail(context) {
  console.error(String(context.error || (context.receiver || context.sender || {}).error || context));
  process.exit(1);
}

async function throughPromises() {
  const connection = new promise.Connection({host, port: Number(port), reconnect: false});
  await connection.open();
  if (role === 'receive') {
    await connection.createReceiver({source: {address}, onMessage: read, onError: fail});
    console.log('attached');
    return;
  }
  const sender = await connection.createAwaitableSender({target: {address}});
  for (const message of messages) {
    await sender.send(message);
    console.log(rhea.message.encode(message).toString('hex'));
  }
  await connection.close();
}

function throughEvents() {
  const container = rhea.create_container();
  const connection = container.connect({host, port: Number(port), reconnect: false});
  for (const bad of ['rejected', 'released', 'modified', 'receiver_error', 'sender_error', 'connection_error']) container.on(bad, fail);
  if (role === 'receive') {
    container.on('receiver_open', () => console.log('attached'));
    container.on('message', read);
    connection.open_receiver({source: {address}});
    return;
  }
  container.on('accepted', (context) => {
    count++;
    if (count === messages.length) context.connection.close();
  });
  container.once('sendable', (context) => {
    for (const message of messages) {
      context.sender.send(message);
      console.log(rhea.message.encode(message).toString('hex'));
    }
  });
  connection.open_sender({target: {address}});
}

if (promise) throughPromises().catch(fail);
else throughEvents();
