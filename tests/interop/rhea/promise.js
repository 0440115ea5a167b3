// rhea-promise: `send|receive HOST:PORT ADDRESS COUNT`, bodies m0, m1, ...
'use strict';
const {Connection} = require('rhea-promise');
const [role, place, address, count] = process.argv.slice(2);
const [host, port] = place.split(':');

async function main() {
  const connection = new Connection({host, port: Number(port), reconnect: false});
  await connection.open();
  if (role === 'send') {
    const sender = await connection.createAwaitableSender({target: {address}});
    for (let number = 0; number < count; number++) await sender.send({body: `m${number}`});
    console.log(`${count} sent`);
    await connection.close();
    return;
  }
  const got = [];
  await connection.createReceiver({
    source: {address},
    onError: (context) => console.log(String(context.receiver.error)),
    onMessage: (context) => {
      got.push(String(context.message.body));
      if (got.length < count) return;
      const ordered = got.every((body, number) => body === `m${number}`);
      console.log(`${got.length} received ${ordered ? 'in order' : got}`);
      setImmediate(() => connection.close());
    },
  });
  console.log('attached');
}
main();
