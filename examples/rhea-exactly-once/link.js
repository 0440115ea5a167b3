// What publisher and subscriber have in common: a journal, connections to one router after another, attaches with a new
// epoch each, refusals, and the time since the network last heard of us. Sections named here are those of docs/wire.md.
'use strict';

const {EventEmitter} = require('events');
const os = require('os');

const {rhea} = require('./rhea.js');
const Journal = require('./journal.js');
const LinkSession = require('./session.js');

const FOREVER = 4294967295;
const PART_ENTRY = 48; // bytes of a map entry, at most
const GIVE_UP = new Set([
    'amqp:not-allowed', 'amqp:not-found', 'amqp:not-implemented', 'amqp:invalid-field', 'amqp:decode-error',
    'amqp:link:message-size-exceeded', 'amqp:link:transfer-limit-exceeded', 'amqp:unauthorized-access',
    'onceway:subscription-removed', 'onceway:subscription-undeclared', 'onceway:subscription-exists',
]);

// Two clocks: one for the next process, and one that nobody sets and that goes on while the machine sleeps.
const now = () => ({wall_ms: Date.now(), up_s: os.uptime()});

// Events: 'status' (text), 'told' (what may have been missed or is in doubt), 'attached', 'error' (it has given up).
class Link extends EventEmitter {
    // urls: 'amqp://host:port' each, tried in this order; container and name: who this is, for ever; address: the topic.
    static async open({urls, container, name, address, journal, ...options}) {
        const link = new this();
        Object.assign(link, {urls, container, name, address, ...options});
        link.journal = await Journal.open(journal, record => link._replay(record), () => link._snapshot());
        link._journal({container: link.container, name: link.name, address: link.address});
        link._connect();
        return link;
    }

    constructor() {
        super();
        this.epoch = 0;
        this.refused = 0;        // the epoch that a refusal named
        this.refusals = 0;       // of stolen, since the network last worked with this link
        this.contact = null;     // {wall_ms, up_s}: the latest time known to have reached the network
        this.timeout_s = null;   // how long the network waits for us
        this.connection = null;
        this.session = null;     // the present attachment; what comes for another one is void
        this.tries = 0;          // in a row, without an answered attach
        this.at = 0;             // in urls
        this.over = false;
    }

    // Leave in order. The network waits for a link that has not been closed for good.
    async close() {
        this.closing = true;
        await this.journal.sync();
        await new Promise(resolve => {
            this.closed = resolve;
            if (this.session && this.session.attached) this._detach(() => this._stop());
            else this._stop();
        });
        await this.journal.close();
    }

    // --- the journal

    // Take a record: into the state at once, and to the disk with the next write.
    _journal(record) {
        this._replay(record);
        this.journal.append(record);
    }

    _replay(record) {
        for (const key of ['container', 'name', 'address']) {
            if (record[key] !== undefined && record[key] !== this[key]) {
                throw new Error(`the journal is that of ${key} ${record[key]}, not of ${this[key]}`);
            }
        }
        if (record.epoch !== undefined) this.epoch = record.epoch;
        if (record.contact !== undefined) {
            this.contact = record.contact && {wall_ms: record.contact, up_s: null};
            this.timeout_s = record.timeout_s;
        }
    }

    * _snapshot() {
        yield {container: this.container, name: this.name, address: this.address};
        yield {epoch: this.epoch};
        if (this.contact) yield {contact: this.contact.wall_ms, timeout_s: this.timeout_s};
    }

    // --- connections (Reconnection)

    _connect() {
        if (this.over) return;
        const url = new URL(this.urls[this.at]);
        let reason = 'the router ended the connection';
        const connection = this.connection = rhea.create_container({id: this.container}).connect({
            host: url.hostname, port: Number(url.port || 5672), container_id: this.container, reconnect: false,
            username: decodeURIComponent(url.username) || 'anonymous', password: decodeURIComponent(url.password) || undefined,
            idle_time_out: 8000, max_frame_size: this.max_frame_size || 1 << 20, tcp_no_delay: true,
        });
        const {socket} = connection;
        const limit = (seconds, what) => setTimeout(() => socket.destroy(new Error(`${what} within ${seconds} s`)), 1000 * seconds);
        let timer = limit(5, 'no connection');
        socket.once('connect', () => {
            clearTimeout(timer);
            timer = limit(10, 'no open');
        });
        socket.once('close', () => {
            clearTimeout(timer);
            this._lost(connection, reason);
        });
        connection.on('connection_open', () => {
            clearTimeout(timer);
            const {properties} = connection;
            this.router = properties && properties.router;
            this.emit('status', `connected to ${this.router} at ${url.host}`);
            this._attach(connection);
        });
        for (const event of ['connection_error', 'connection_close', 'protocol_error', 'error', 'disconnected']) {
            connection.on(event, what => { // rhea ends the socket; it closes soon, or we close it
                const error = what.error || what;
                if (error instanceof Error) reason = event === 'error' ? error.stack : `${error.condition || ''} ${error.message}`;
                clearTimeout(timer);
                timer = limit(1, 'no end of the connection');
            });
        }
    }

    _lost(connection, reason) {
        if (connection !== this.connection) return;
        this.connection = null;
        this._drop_session();
        if (this.over) return this._ended();
        this.at = (this.at + 1) % this.urls.length;
        const longest_ms = Math.min(5000, 50 * 2 ** this.tries++);
        const wait_ms = Math.max(50, longest_ms * (0.5 + Math.random() / 2));
        this.emit('status', `no connection: ${reason.trim()}; next try in ${(wait_ms / 1000).toFixed(2)} s`);
        this.retry = setTimeout(() => this._connect(), wait_ms);
    }

    _stop() {
        this.over = true;
        clearTimeout(this.retry);
        if (!this.connection) return this._ended();
        const {socket} = this.connection;
        this.connection.close();
        setTimeout(() => socket.destroy(new Error('closed')), 1000).unref();
    }

    _ended() {
        if (this.closed) this.closed();
    }

    _give_up(why) {
        this._stop();
        setImmediate(() => this.emit('error', new Error(why)));
    }

    // --- attach and detach

    // A new epoch, durable; then the map, in as many parts as the router's frame size makes necessary.
    async _attach(connection) {
        this._drop_session();
        const wall_us = Date.now() * 1000;
        this._before_attach(Math.max(wall_us, this.epoch + 1, this.refused + 1));
        await this.journal.sync();
        if (connection !== this.connection || this.over || this.closing || this.session) return;
        const fields = this._attach_fields();
        const room = LinkSession.max_frame_size(connection) - 1024 - 3 * Buffer.byteLength(this.name + this.address);
        const most = Math.max(1, Math.floor(room / PART_ENTRY));
        const parts = [], rest = fields.unsettled;
        while (rest && rest.length > most) parts.push(rest.splice(0, most));
        this._attach_part(connection, fields, [...parts, rest]);
    }

    _attach_part(connection, fields, parts) {
        const session = this.session = new LinkSession(connection, this);
        session.presented = fields.presented;
        session.next_part = parts.length > 1 ? () => this._attach_part(connection, fields, parts.slice(1)) : null;
        session.once('session_open', () => {
            if (session !== this.session) return;
            session.sent = now();
            session.attach({...fields, name: this.name, unsettled: parts[0], incomplete_unsettled: parts.length > 1});
        });
        session.begin();
    }

    on_attach(session, answer) {
        const terminus = session === this.session && this._terminus(answer);
        if (!terminus || session.next_part) return; // refused, or more of the map is asked for: a detach follows
        if (answer.properties['onceway:guarantee'] !== 'exactly-once') {
            return this._give_up(`the address gives ${answer.properties['onceway:guarantee']}`);
        }
        session.attached = true;
        session.answered_s = os.uptime();
        this.tries = 0;
        this.emit('status', `${this.address}: attached at ${this.router}`);
        this._answered(session, answer, terminus);
        this.emit('attached', this.router);
    }

    // Detach without closing; `then` is called when the router has answered.
    _detach(then) {
        const {session} = this;
        session.attached = false;
        session.credit = 0;
        session.detached = then;
        session.detach(false);
    }

    on_detach(session, closed, error) {
        session.detach(closed);
        session.end();
        if (session !== this.session) return;
        const worked = this._worked(session);
        this._drop_session();
        if (session.detached) return session.detached();
        if (session.next_part && !error && !closed) return session.next_part();
        const condition = error ? error.condition : 'detached';
        this.emit('status', `${this.address}: ${condition} ${error && error.description || ''}`);
        if (condition === 'amqp:link:stolen') return this._stolen(worked, error);
        if (GIVE_UP.has(condition)) return this._give_up(`${condition}: ${error.description}`);
        if (this._told(condition)) return this._attach(this.connection);
        this._next_router();
    }

    on_end(session, error) {
        if (session !== this.session) return;
        this._drop_session();
        this.emit('status', `session ended: ${error ? error.condition : ''}`);
        this._next_router();
    }

    // Another process may use our identity: then one of the two has to stop.
    _stolen(worked, error) {
        if (worked || this.refusals === 4) return this._give_up('another process uses this container-id and link name');
        this.refusals++;
        const known = error.info && error.info['onceway:epoch'];
        this.refused = Math.max(this.refused, Number(known) || 0) + Math.floor(Math.random() * 2 ** 20);
        this._refused();
        this._attach(this.connection);
    }

    _next_router() {
        if (!this.over) this.connection.socket.destroy(new Error('trying the next router'));
    }

    _drop_session() {
        if (!this.session) return;
        clearInterval(this.session.asking);
        if (this._worked(this.session)) this.refusals = 0;
        this.session.attached = false;
        this.session = null;
    }

    // --- absence (Absence)

    // Ask now and then: begin a session of no use, and see that the router begins it too.
    _ask(session) {
        const ask = () => {
            const asked = now();
            const question = this.connection.create_session();
            question.once('session_open', () => {
                question.close();
                if (session === this.session && session.attached) this._heard(asked);
            });
            question.begin();
        };
        ask();
        session.asking = setInterval(ask, 1000 * this.timeout_s / 16);
    }

    // What we said at `time` has been answered.
    _heard(time) {
        if (!this.written || time.up_s - this.written > this.timeout_s / 8) {
            this.written = time.up_s;
            this._journal({contact: time.wall_ms, timeout_s: this.timeout_s});
        }
        this.contact = time;
    }

    // True, false, or null where the clock was set back so that nobody knows.
    _absent_too_long() {
        if (!this.contact) return false;
        const margin_s = Math.min(5, this.timeout_s / 4);
        const {wall_ms, up_s} = now();
        const absence_s = this.contact.up_s === null ? (wall_ms - this.contact.wall_ms) / 1000 : up_s - this.contact.up_s;
        return absence_s < -margin_s ? null : absence_s > this.timeout_s - margin_s;
    }
}

module.exports = {Link, FOREVER};
