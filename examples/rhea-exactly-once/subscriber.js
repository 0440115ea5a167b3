// A subscriber whose application is handed each message once, whatever dies: routers, connections, this process.
'use strict';

const {message, types} = require('./rhea.js');
const {Link, FOREVER} = require('./link.js');
const {ranges} = require('./publisher.js');

// One delivery in the application's hands. It decides once: accept(), reject() or release(). Each promise resolves when
// the word is durable; `tag` names the delivery also after a restart.
class Delivery {
    constructor(subscriber, tag, payload, outcome) {
        this.subscriber = subscriber;
        this.tag = tag;          // hex
        this.payload = payload;  // null: decided by an earlier process
        this.outcome = outcome;  // null: undecided
        this.durable = Boolean(outcome);
        this.session = null;     // the attachment on which it has `id`
        this.id = null;
        this.over = false;       // settled: the application's word counts no more
    }

    get body() {
        const {body} = message.decode(this.payload);
        return body && body.content !== undefined ? body.content : body;
    }

    // [container-id, link name]
    get publisher() {
        const named = message.decode(this.payload).message_annotations['x-opt-onceway-publisher'];
        return named.split('/').map(decodeURIComponent);
    }

    accept() {
        return this.subscriber._decide(this, 'accepted');
    }

    reject() {
        return this.subscriber._decide(this, 'rejected');
    }

    // Again, please: it comes again ahead of what has not been sent yet.
    release() {
        return this.subscriber._decide(this, 'released');
    }

    get state() {
        if (!this.durable) return types.Null();
        const error = {condition: 'onceway:rejected', description: 'rejected by the application'};
        return message[this.outcome](this.outcome === 'rejected' ? {error} : {}).described();
    }
}

// `on_message(delivery)` is called once for each delivery that this process has to decide.
class Subscriber extends Link {
    constructor() {
        super();
        this.born = 0;
        this.gap = false;          // messages may have been missed
        this.window = 100;         // undecided deliveries that we have room for
        this.undecided = 0;
        this.verdicts = new Map(); // tag -> outcome, as in the journal
        this.held = new Map();     // tag -> Delivery, decided or not
    }

    static async open(options) {
        const subscriber = await super.open(options);
        for (const [tag, outcome] of subscriber.verdicts) {
            subscriber.held.set(tag, new Delivery(subscriber, tag, null, outcome));
        }
        return subscriber;
    }

    _replay(record) {
        super._replay(record);
        if (record.born !== undefined) this.born = record.born;
        if (record.tag !== undefined) this.verdicts.set(record.tag, record.outcome);
        if (record.forget !== undefined) this.verdicts.delete(record.forget);
    }

    * _snapshot() {
        yield* super._snapshot();
        yield {born: this.born};
        for (const [tag, outcome] of this.verdicts) yield {tag, outcome};
    }

    // --- attach

    _before_attach(epoch) {
        if (this.born && this._absent_too_long()) this.gap = true;
        this._journal({epoch});
    }

    _attach_fields() {
        const born = this.gap || !this.born ? this.epoch : this.born;
        const held = [...this.held.values()];
        return {
            role: true,
            source: {address: this.address, timeout: FOREVER, expiry_policy: 'never'},
            target: {address: this.name},
            unsettled: this.born ? held.map(delivery => [Buffer.from(delivery.tag, 'hex'), delivery.state]) : null,
            presented: this.born ? held.map(delivery => delivery.tag) : [],
            properties: {'onceway:epoch': this.epoch, 'onceway:born': born},
        };
    }

    _terminus(answer) {
        return answer.source;
    }

    async _answered(session, answer, {timeout}) {
        this.timeout_s = timeout;
        if (this.gap) this.emit('told', 'messages may have been missed');
        const fresh = this.gap || !this.born;
        this.gap = false;
        this.written = null; // journal this contact
        if (fresh) this._journal({born: this.epoch});
        this._heard(session.sent);
        session.ids = new Map(); // delivery-id -> tag
        session.incomplete = answer.incomplete;
        session.to_resume = new Set(answer.listed);
        session.to_say = [];
        session.awaited = new Set(answer.listed); // of an incomplete answer: until these have our word
        if (!answer.incomplete) {
            for (const tag of session.presented) if (!session.to_resume.has(tag)) this._forget(tag);
        }
        await this.journal.sync();
        if (session !== this.session) return;
        session.has_credit = true;
        this._grant(session);
        this._ask(session);
    }

    _worked(session) {
        return session.attached;
    }

    _refused() {}

    _told(condition) {
        if (condition !== 'onceway:subscription-broken') return false;
        this.gap = true;
        return true;
    }

    // --- deliveries

    on_flow(session, flow) {
        if (session === this.session && session.attached && flow && flow.echo) session.flow();
    }

    on_transfer(session, {id, tag: binary, payload, settled, resume, aborted}) {
        if (session !== this.session || !session.attached) return;
        const tag = binary.toString('hex');
        let delivery = this.held.get(tag);
        session.to_resume.delete(tag);
        if (delivery && (aborted || (settled && resume) || (delivery.outcome === 'released' && !resume))) {
            this._forget(tag);
            delivery = undefined;
        }
        if (aborted || (settled && resume)) {
            // over
        } else if (delivery) {
            Object.assign(delivery, {session, id});
            this._say(delivery);
        } else if (!payload) {
            session.disposition(true, id, id, false, message.released().described());
        } else {
            delivery = new Delivery(this, tag, payload, null);
            delivery.over = settled; // at most once: nothing to say
            if (!settled) {
                Object.assign(delivery, {session, id});
                this.held.set(tag, delivery);
                this.undecided++;
            }
            queueMicrotask(() => this.on_message(delivery)); // what it throws ends the process, not the connection
        }
        if (delivery && !delivery.over) session.ids.set(id, tag);
        this._grant(session);
    }

    async _decide(delivery, outcome) {
        if (delivery.over || delivery.outcome) return;
        delivery.outcome = outcome;
        this.undecided--;
        if (outcome !== 'released') {
            this._journal({tag: delivery.tag, outcome});
            await this.journal.sync();
        }
        delivery.durable = true;
        this._say(delivery);
        if (this.session) this._grant(this.session);
    }

    // Say our word where the delivery has an id now; else the next map or the resumed transfer does. In ranges.
    _say(delivery) {
        const {session} = delivery;
        if (!delivery.durable || delivery.over || session !== this.session || !session.attached) return;
        session.to_say.push(delivery);
        if (session.to_say.length === 1) setImmediate(() => this._say_all(session));
    }

    _say_all(session) {
        const said = session.to_say;
        session.to_say = [];
        if (session !== this.session || !session.attached) return;
        for (const outcome of ['accepted', 'rejected', 'released']) {
            const some = said.filter(delivery => delivery.outcome === outcome);
            for (const [first, last] of ranges(some.map(delivery => delivery.id))) {
                session.disposition(true, first, last, false, some[0].state);
            }
        }
        for (const delivery of said) session.awaited.delete(delivery.tag);
        this._attach_again_after_part(session);
    }

    on_disposition(session, {role, ids, settled}) {
        if (role || !settled || session !== this.session || !session.attached) return;
        for (const id of ids) {
            const tag = session.ids.get(id);
            session.ids.delete(id);
            const delivery = tag && this.held.get(tag);
            if (delivery && delivery.session === session && delivery.id === id) this._forget(tag);
        }
        this._grant(session);
    }

    // Settled. It needs no write that anybody waits for: what the journal has too much, the next answer tells.
    _forget(tag) {
        const delivery = this.held.get(tag);
        if (delivery) {
            delivery.over = true;
            if (!delivery.outcome) this.undecided--;
            this.held.delete(tag);
        }
        if (this.verdicts.has(tag)) this._journal({forget: tag});
        if (this.session && this.session.awaited) {
            this.session.awaited.delete(tag);
            this._attach_again_after_part(this.session);
        }
    }

    // The answer did not fit into our frame, and all that it listed has been dealt with.
    _attach_again_after_part(session) {
        if (session.incomplete && session.attached && !session.awaited.size) this._detach(() => this._attach(this.connection));
    }

    // Room for new deliveries, and one credit for each resumed one that is still to come.
    _grant(session) {
        if (!session.has_credit || !session.attached) return;
        const wanted = this.window - this.undecided + session.to_resume.size;
        if (wanted - session.credit >= (session.credit > 0 ? Math.max(1, this.window / 4) : 1)) {
            session.credit = wanted;
            session.flow();
        }
    }
}

module.exports = Subscriber;
