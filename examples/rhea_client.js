// Publish and receive with rhea (`npm install rhea`), at least once.
//
//     node examples/rhea_client.js [URL]
//
// Any AMQP 1.0 client works.  For exactly once, rhea's links are opened with rcv_settle_mode 1, and the application keeps
// tags: docs/clients.md has the rules.
'use strict';
const rhea = require('rhea');

const url = new URL(process.argv[2] || 'amqp://127.0.0.1:5672');
const total = 5;
let sent = 0;
let accepted = 0;
const container = rhea.create_container();

container.on('receiver_open', (context) => context.connection.open_sender('rhea')); // now there is a subscriber
container.on('sendable', (context) => {
  while (sent < total && context.sender.sendable()) {
    context.sender.send({body: `message ${sent}`});
    sent++;
  }
});
container.on('message', (context) => console.log(`received ${context.message.body}`)); // accepted when this returns
container.on('accepted', (context) => {
  accepted++;
  if (accepted === total) {
    console.log(`${accepted} accepted`);
    context.connection.close();
  }
});
for (const bad of ['rejected', 'released', 'sender_error', 'receiver_error', 'connection_error']) {
  container.on(bad, (context) => {
    console.error(bad, context.error || '');
    process.exit(1);
  });
}
container.connect({host: url.hostname, port: Number(url.port), reconnect: false}).open_receiver('rhea');
