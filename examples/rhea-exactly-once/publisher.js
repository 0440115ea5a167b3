// A publisher whose messages arrive exactly once, whatever dies: routers, connections, this process.
'use strict';

const os = require('os');

const {message, types} = require('./rhea.js');
const {Link, FOREVER} = require('./link.js');

const OUTCOMES = {0x24: 'accepted', 0x25: 'rejected', 0x26: 'released', 0x27: 'modified'};

function tag_of(n) {
    const tag = Buffer.alloc(8);
    tag.writeBigUInt64BE(BigInt(n));
    return tag;
}

// `on_outcome(n, outcome)` is called once for each message: accepted, rejected, released or, when the network has forgotten
// us meanwhile, undecided. If the process dies in it, the next process is told again.
class Publisher extends Link {
    constructor() {
        super();
        this.incarnation = 0;
        this.next = 0;              // the number of the next message
        this.durable = 0;           // messages below are in the journal for good
        this.undecided = new Map(); // n -> payload, in order
        this.outcomes = new Map();  // n -> outcome that the application has not been told
    }

    static async open(options) {
        const publisher = await super.open(options);
        publisher.durable = publisher.next;
        publisher._tell();
        return publisher;
    }

    // Publish a body (string or Buffer) and return its number. It is safe when the promise `durable(n)` has resolved.
    publish(body) {
        const payload = message.encode({body: message.data_section(Buffer.from(body))});
        const n = this.next;
        this._journal({n, payload: payload.toString('base64')});
        this.journal.sync().then(() => {
            this.durable = Math.max(this.durable, n + 1);
            if (this.session && this.session.to_send && this.undecided.has(n)) {
                this.session.to_send.push(n);
                this._send(this.session);
            }
        });
        return n;
    }

    _replay(record) {
        super._replay(record);
        if (record.incarnation !== undefined) this.incarnation = record.incarnation;
        if (record.next !== undefined) this.next = record.next;
        if (record.payload !== undefined) {
            this.undecided.set(record.n, Buffer.from(record.payload, 'base64'));
            this.next = Math.max(this.next, record.n + 1);
        }
        for (const n of record.over || []) {
            this.undecided.delete(n);
            this.outcomes.set(n, record.outcome);
        }
        for (const n of record.told || []) this.outcomes.delete(n);
    }

    * _snapshot() {
        yield* super._snapshot();
        yield {incarnation: this.incarnation, next: this.next};
        for (const [n, payload] of this.undecided) yield {n, payload: payload.toString('base64')};
        for (const [n, outcome] of this.outcomes) yield {over: [n], outcome};
    }

    // --- attach

    _before_attach(epoch) {
        if (this.undecided.size && this._absent_too_long() !== false) this._expire();
        this.fresh = this.incarnation === 0;
        this._journal({epoch, incarnation: this.incarnation || epoch});
    }

    _attach_fields() {
        const known = [...this.undecided.keys()].filter(n => n < this.durable);
        return {
            role: false,
            initial_delivery_count: 0,
            source: {address: this.name},
            target: {address: this.address, timeout: FOREVER, expiry_policy: 'never'},
            unsettled: this.fresh ? null : known.map(n => [tag_of(n), types.Null()]),
            presented: this.fresh ? 0 : known.length,
            properties: {'onceway:epoch': this.epoch, 'onceway:incarnation': this.incarnation},
        };
    }

    _terminus(answer) {
        return answer.target;
    }

    _answered(session, answer, {timeout}) {
        this.timeout_s = timeout && timeout !== FOREVER ? timeout : 120;
        session.ids = new Map(); // delivery-id -> n
        session.to_send = [...this.undecided.keys()].filter(n => n < this.durable);
        if (session.presented === 0) this._heard(session.sent);
    }

    _worked(session) {
        return session.has_outcome || (session.attached && os.uptime() - session.answered_s > 5);
    }

    _refused() {
        if (!this.undecided.size) this._journal({incarnation: 0});
    }

    _told(condition) {
        if (condition !== 'onceway:publisher-unknown' && condition !== 'onceway:publisher-expired') return false;
        this._expire();
        return true;
    }

    // The network has forgotten us: what is undecided may or may not arrive, and must not be sent again.
    _expire() {
        this._journal({over: [...this.undecided.keys()], outcome: 'undecided', incarnation: 0, contact: null});
        this.emit('told', 'away for too long: what is undecided may or may not arrive');
        this._tell();
    }

    // --- deliveries

    on_flow(session, flow) {
        if (session !== this.session || !session.attached) return;
        if (!session.asking && this.undecided.size && this._absent_too_long() !== false) {
            return this._detach(() => this._attach(this.connection)); // it expires there
        }
        if (flow) {
            session.credit = ((flow.delivery_count || 0) + flow.link_credit - session.delivery_count) | 0;
            if (flow.echo) session.flow(); // before transfers use the credit up: it shows the limit that we were told
        }
        this._send(session);
        if (flow && flow.drain && !session.to_send.length) session.drained();
        if (flow && !session.asking) this._ask(session);
    }

    _send(session) {
        while (session.credit > 0 && session.to_send.length) {
            const n = session.to_send[0];
            const id = session.transfer(tag_of(n), this.undecided.get(n));
            if (id === null) return;
            session.ids.set(id, n);
            session.to_send.shift();
        }
    }

    on_disposition(session, {role, ids, settled, state}) {
        const outcome = state && state.descriptor && OUTCOMES[state.descriptor.value];
        const known = ids.filter(id => session.ids.has(id));
        if (!role || !outcome || !known.length || session !== this.session) return;
        session.has_outcome = true;
        this._journal({over: known.map(id => session.ids.get(id)), outcome});
        for (const id of known) session.ids.delete(id);
        this.journal.sync().then(() => {
            if (session === this.session && !settled) {
                for (const [first, last] of ranges(known)) session.disposition(false, first, last, true);
            }
            this._tell();
        });
    }

    async _tell() {
        const durable = [...this.outcomes];
        await this.journal.sync();
        const told = durable.filter(([n]) => this.outcomes.has(n));
        for (const [n, outcome] of told) this.on_outcome(n, outcome);
        if (told.length) this._journal({told: told.map(([n]) => n)});
    }
}

// Runs of adjacent ids, in the order given.
function ranges(ids) {
    const found = [];
    for (const id of ids) {
        const last = found[found.length - 1];
        if (last && ((last[1] + 1) >>> 0) === id) last[1] = id;
        else found.push([id, id]);
    }
    return found;
}

module.exports = Publisher;
module.exports.ranges = ranges;
