#!/usr/bin/env node
// Append each message of a topic to a file, exactly once.
//
//     node subscribe.js --urls amqp://127.0.0.1:5673,amqp://127.0.0.1:5674 --address orders --name billing \
//         --journal billing.journal billing.txt
//
// Kill it and start it again. The effect of a message is a line of the file, `tag body`. The effect and the acceptance are
// two writes, and the process may die in between: then the delivery comes again with the same tag, which the file shows.
'use strict';

const fs = require('fs');
const {parseArgs} = require('util');
const {Subscriber} = require('./index.js');

// A file of lines that survives kill -9: a last line that is not whole was never accepted and goes.
class Output {
    constructor(file) {
        const text = fs.existsSync(file) ? fs.readFileSync(file) : Buffer.alloc(0);
        const whole = text.lastIndexOf(10) + 1;
        this.tags = new Set(text.toString('utf8', 0, whole).split('\n').map(line => line.split(' ', 1)[0]));
        this.fd = fs.openSync(file, 'a');
        fs.ftruncateSync(this.fd, whole);
    }

    append(deliveries) {
        const fresh = deliveries.filter(({tag}) => !this.tags.has(tag));
        fs.writeSync(this.fd, fresh.map(({tag, body}) => `${tag} ${body}\n`).join(''));
        fs.fdatasyncSync(this.fd);
    }
}

async function main() {
    const {values, positionals: [file]} = parseArgs({allowPositionals: true, options: {
        urls: {type: 'string', default: 'amqp://127.0.0.1:5673,amqp://127.0.0.1:5674,amqp://127.0.0.1:5672'},
        address: {type: 'string', default: 'orders'},
        name: {type: 'string', default: 'billing'},
        journal: {type: 'string', default: 'subscriber.journal'},
    }});
    const output = new Output(file);
    let batch = [];
    const subscriber = await Subscriber.open({
        urls: values.urls.split(','), address: values.address, container: values.name, name: values.name,
        journal: values.journal,
        on_message(delivery) {
            batch.push(delivery);
            if (batch.length === 1) setImmediate(work);
        },
    });
    function work() { // what came together is one write
        const deliveries = batch;
        batch = [];
        output.append(deliveries);
        for (const delivery of deliveries) delivery.accept();
    }
    for (const event of ['status', 'told']) subscriber.on(event, text => console.error(`[${values.name}] ${text}`));
    subscriber.on('error', error => {
        console.error(`[${values.name}] gave up: ${error.message}`);
        process.exit(1);
    });
    for (const signal of ['SIGINT', 'SIGTERM']) {
        process.once(signal, () => subscriber.close().then(() => process.exit(0)));
    }
}

main();
