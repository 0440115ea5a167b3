// node subscribe.js HOST PORT ADDRESS MODE COUNT [large]
// Prints `attached`, then one JSON line for each message (its size and digest when `large`), and ends after COUNT.
'use strict';
const crypto = require('crypto');
const {connect, created, MODES, line} = require('./common.js');
const [host, port, address, mode, count, large] = process.argv.slice(2);

let received = 0;
const container = created('subscriber', [], () => received < Number(count));
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
connect(container, host, port)
  .open_receiver({source: {address}, ...MODES[mode], credit_window: 50});
