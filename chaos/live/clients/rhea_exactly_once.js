// A publisher or a subscriber of a run on examples/rhea-exactly-once, which survives its own death with a journal:
// `node rhea_exactly_once.js publish|subscribe OPTIONS`, options as JSON. Says READY and DONE; SIGTERM: come to an end.
//
// The history is a file of its own beside the journal, so a process that comes back first writes the lines that the one
// before it could not: accepts that are in the journal. What it had written before it published is not written again.
'use strict';

const fs = require('fs');
const path = require('path');
const {Publisher, Subscriber} = require(path.join(__dirname, '..', '..', '..', 'examples', 'rhea-exactly-once'));

const IN_FLIGHT = 1000;
const TICK_MS = 5;

const [what, json] = process.argv.slice(2);
const options = JSON.parse(json);
const {name} = options;
const me = what === 'publish' ? {p: name} : {s: name};

const now_s = () => Number(process.hrtime.bigint()) / 1e9; // CLOCK_MONOTONIC

class History {
    constructor(file) {
        const data = fs.existsSync(file) ? fs.readFileSync(file) : Buffer.alloc(0);
        const whole = data.lastIndexOf(10) + 1;
        this.past = data.toString('utf8', 0, whole).split('\n').filter(Boolean).map(JSON.parse);
        this.fd = fs.openSync(file, 'a');
        fs.ftruncateSync(this.fd, whole);
    }

    write(op, fields) {
        fs.writeSync(this.fd, JSON.stringify({op, t: now_s(), ...me, ...fields}) + '\n');
    }
}

const history = new History(options.history);

function watch(link) {
    link.on('status', text => process.stderr.write(`${text}\n`));
    link.on('told', why => history.write('told', {why}));
    link.on('attached', router => history.write('attached', {router}));
    link.on('error', error => {
        process.stderr.write(`gave up: ${error.message}\n`);
        process.exit(1);
    });
}

const common = {
    urls: options.urls.split(','), container: name, name, address: options.address, journal: options.journal,
};

async function publish() {
    let last_sent = Math.max(-1, ...history.past.filter(({op}) => op === 'send').map(({n}) => n).slice(-1));
    history.write('start', {});
    const publisher = await Publisher.open({...common, on_outcome(n, outcome) {
        history.write('outcome', {n, outcome: outcome === 'released' ? 'rejected' : outcome});
    }});
    watch(publisher);
    let told_to_end = false;
    process.on('SIGTERM', () => { told_to_end = true; });
    await new Promise(resolve => publisher.once('attached', resolve));
    console.log('READY');

    const {rate, count} = options;
    const began = now_s(), first = publisher.next;
    const until = options.until || (options.duration ? began + options.duration : Infinity);
    const over = () => told_to_end || now_s() >= until || (count && publisher.next >= count);
    while (!over() || publisher.undecided.size || publisher.outcomes.size) {
        const due = first + (now_s() - began) * rate;
        while (!over() && publisher.next < due && publisher.undecided.size < IN_FLIGHT) {
            const n = publisher.next;
            if (n > last_sent) history.write('send', {n});
            last_sent = Math.max(last_sent, n);
            publisher.publish(`${name} ${n} `.padEnd(options.size, '.'));
        }
        await new Promise(resolve => setTimeout(resolve, TICK_MS));
    }
    history.write('close', {});
    await publisher.close();
    console.log('DONE');
    process.exit(0);
}

async function subscribe() {
    const received = new Map(history.past.filter(({op}) => op === 'receive').map(({tag, p, n}) => [tag, {p, n}]));
    const accepted = new Set(history.past.filter(({op}) => op === 'accept').map(({tag}) => tag));
    const queue = [];
    const subscriber = await Subscriber.open({...common, window: options.credit, on_message(delivery) {
        const [p, n] = delivery.body.toString().split(' ', 2);
        const line = {p, n: Number(n), tag: delivery.tag};
        history.write('receive', line);
        queue.push([delivery, line]);
        if (queue.length === 1) setImmediate(work);
    }});
    for (const tag of subscriber.verdicts.keys()) {
        if (received.has(tag) && !accepted.has(tag)) history.write('accept', {...received.get(tag), tag});
    }
    history.write('start', {});
    watch(subscriber);
    const lives = history.past.filter(({op}) => op === 'ready' || op === 'told');
    let ready = lives.length > 0 && lives.pop().op === 'ready';
    subscriber.on('told', () => { ready = false; });
    subscriber.on('attached', () => {
        if (!ready) history.write('ready', {});
        ready = true;
        console.log('READY');
    });

    async function work() {
        while (queue.length) {
            if (options.pause) await new Promise(resolve => setTimeout(resolve, 1000 * options.pause));
            const [delivery, line] = queue[0];
            delivery.accept().then(() => { if (!delivery.over) history.write('accept', line); });
            queue.shift();
        }
    }

    process.once('SIGTERM', async () => {
        history.write('close', {});
        await subscriber.close();
        process.exit(0);
    });
}

(what === 'publish' ? publish : subscribe)();
