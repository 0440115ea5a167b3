// node subscribe.js HOST PORT ADDRESS MODE COUNT [large]
// Prints `attached`, then one JSON line for each message (its size and digest when `large`), and ends after COUNT.
'use strict';
const crypto = require('crypto');
const {rhea, connect, MODES, line} = require('./common.js');
const [host, port, address, mode, count, large] = process.argv.slice(2);

let received = 0;
const container = rhea.create_container({id: 'rhea-subscriber-' + process.pid});
container.on('receiver_open', () => console.log('attached'));
container.on('message', (context) => {
  received++;
  if (large) {
    const content = context.message.body.content;
    console.log(`${content.length} ${crypto.createHash('md5').update(content).digest('hex')}`);
  } else {
    console.log(line(context.message));
  }
  if (received === Number(count)) {
    // The last outcome goes out with this turn, before the close.
    setImmediate(() => {
      context.receiver.close();
      context.connection.close();
    });
  }
});
for (const bad of ['receiver_error', 'session_error', 'connection_error', 'disconnected']) {
  container.on(bad, (context) => {
    if (bad === 'disconnected' && received >= Number(count)) return;
    console.error(bad, context.error || (context.receiver && context.receiver.error) || '');
    process.exit(1);
  });
}
connect(container, host, port)
  .open_receiver({source: {address}, ...MODES[mode], credit_window: 50});
