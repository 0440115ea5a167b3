// node anonymous.js HOST PORT ADDRESS...
// Sends to each address and to $cbs, three times, on one link without an address; prints each outcome with where it was sent.
'use strict';
const {rhea, connect} = require('./common.js');
const [host, port, ...addresses] = process.argv.slice(2);

const list = [1, 2, 3].flatMap((n) => [...addresses, '$cbs'].map((to) => ({to, body: n})));
const container = rhea.create_container({id: 'rhea-anonymous-' + process.pid});
let left = list.length;
const sent = new Map(); // delivery id -> to
container.once('sendable', ({sender, connection}) => {
  console.log(`offered ${connection.remote.open.offered_capabilities}`);
  for (const message of list) sent.set(sender.send(message).id, message.to);
});
for (const outcome of ['accepted', 'released', 'rejected']) {
  container.on(outcome, ({delivery, connection}) => {
    const error = delivery.remote_state.error;
    console.log(`${sent.get(delivery.id)} ${outcome}${error ? ' ' + error.condition : ''}`);
    if (--left === 0) connection.close();
  });
}
for (const bad of ['sender_error', 'session_error', 'connection_error']) {
  container.on(bad, (context) => {
    console.error(bad, context.error || '');
    process.exit(1);
  });
}
connect(container, host, port).open_sender({target: {}});
