// node request.js HOST PORT ADDRESS COUNT
// Asks COUNT times for a reply to a dynamic source, one request after the other, and prints the replies.
'use strict';
const {rhea} = require('./common.js');
const [host, port, address, count] = process.argv.slice(2);

const container = rhea.create_container({id: 'rhea-request-' + process.pid});
let asked = 0;
let replies, requests;
const ask = () => {
  asked++;
  requests.send({body: 'request ' + asked, correlation_id: asked, reply_to: replies.source.address});
};
container.on('receiver_open', (context) => {
  replies = context.receiver;
  requests = context.connection.open_sender(address);
});
container.once('sendable', ask);
container.on('message', (context) => {
  console.log(context.message.body);
  if (asked < Number(count)) ask();
  else setImmediate(() => context.connection.close());
});
for (const bad of ['receiver_error', 'sender_error', 'session_error', 'connection_error', 'rejected']) {
  container.on(bad, (context) => {
    console.error(bad, context.error || '');
    process.exit(1);
  });
}
container.connect({host, port: Number(port), reconnect: false}).open_receiver({source: {dynamic: true}});
