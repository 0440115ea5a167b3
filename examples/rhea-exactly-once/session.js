// An AMQP session of one link whose frames can say what recovery needs.
//
// rhea's own links write no unsettled map, show neither echo nor resume, and bound deliveries by a buffer that is freed in
// order. So rhea does connection, SASL, framing and encoding here, and this session hands the performatives of its one link
// to `link`: on_attach, on_flow, on_transfer, on_disposition, on_detach, on_end, each called with the session first.
'use strict';

const {Session, frames, terminus, types} = require('./rhea.js');

const HANDLE = 0;
const UNSETTLED = 7; // the place of this field in an attach
const HEADROOM = 128; // for the transfer's own fields

class LinkSession extends Session {
    static max_frame_size(connection) {
        return connection.max_frame_size || 4294967295; // what the router takes
    }

    constructor(connection, link) {
        let channel = 0;
        while (connection.local_channel_map[channel]) channel++;
        super(connection, channel);
        connection.local_channel_map[channel] = this;
        this.link = link;
        this.partial = null;       // a transfer of which more frames are to come
        this.send_window = 0;      // transfer frames that the router has room for
        this.delivery_count = 0;   // of our link
        this.credit = 0;
        this.next_delivery_id = 0; // as a sender
        this.detach_sent = false;
        for (const event of ['session_error', 'session_close']) {
            this.on(event, () => { this.link.on_end(this, this.error); });
        }
    }

    // --- what we say

    // `unsettled`: null, or a list of [Buffer, encoded delivery-state]. rhea would write a Map as an empty one here.
    attach({unsettled, source, target, properties, ...fields}) {
        const attach = frames.attach({
            handle: HANDLE, snd_settle_mode: 0, rcv_settle_mode: 1, ...fields,
            source: terminus.source(source).described(),
            target: terminus.target(target).described(),
            properties: Object.fromEntries(Object.entries(properties).map(([key, n]) => [key, types.wrap_ulong(n)])),
        });
        if (unsettled) {
            attach.value[UNSETTLED] = types.Map32(unsettled.flatMap(([tag, state]) => [types.wrap_binary(tag), state]));
        }
        this.output(attach);
    }

    flow() {
        this._write_flow({_get_drain: () => false, delivery_count: this.delivery_count, credit: this.credit, local: {handle: HANDLE}});
    }

    // The answer to drain: the credit is used up without deliveries.
    drained() {
        this.delivery_count = (this.delivery_count + this.credit) >>> 0;
        this.credit = 0;
        this.flow();
    }

    // The delivery-id, or null where the router's window has no room for all of the payload now.
    transfer(tag, payload) {
        const size = LinkSession.max_frame_size(this.connection) - HEADROOM;
        const count = Math.max(1, Math.ceil(payload.length / size));
        if (count > this.send_window) return null;
        const delivery_id = this.next_delivery_id;
        this.next_delivery_id = (delivery_id + 1) >>> 0;
        for (let i = 0; i < count; i++) {
            const first = i === 0 ? {delivery_id, delivery_tag: tag, message_format: 0, settled: false} : {};
            const more = i + 1 < count;
            this.output(frames.transfer({handle: HANDLE, more, ...first}), payload.subarray(i * size, (i + 1) * size));
        }
        this.outgoing.next_transfer_id += count;
        this.send_window -= count;
        this.delivery_count = (this.delivery_count + 1) >>> 0;
        this.credit--;
        return delivery_id;
    }

    disposition(role, first, last, settled, state) {
        this.output(frames.disposition({role, first, last, settled, state}));
    }

    detach(closed) {
        if (this.detach_sent) return;
        this.detach_sent = true;
        this.output(frames.detach({handle: HANDLE, closed}));
    }

    // --- what the router says

    on_attach({performative}) {
        const map = performative.value[UNSETTLED]; // as it was read; rhea would make its keys text
        const listed = map && map.value ? map.value.filter((_, i) => i % 2 === 0).map(key => key.value.toString('hex')) : [];
        this.link.on_attach(this, {
            source: terminus.unwrap(performative.source),
            target: terminus.unwrap(performative.target),
            properties: performative.properties || {},
            incomplete: Boolean(performative.incomplete_unsettled),
            listed,
        });
    }

    on_flow({performative}) {
        this.incoming.on_flow(performative);
        const expected = performative.next_incoming_id || 0;
        this.send_window = (expected + performative.incoming_window - this.outgoing.next_transfer_id) | 0;
        const of_link = performative.handle !== undefined && performative.handle !== null;
        if (!of_link && performative.echo) this._write_flow();
        this.link.on_flow(this, of_link ? performative : null);
    }

    on_transfer({performative, payload}) {
        this.incoming.next_transfer_id++;
        this.connection._register(); // rhea opens the session's window again
        const {delivery_id, delivery_tag, message_format, more, settled, resume, aborted} = performative;
        const whole = this.partial || {id: delivery_id, tag: delivery_tag, format: message_format || 0, parts: []};
        whole.settled = whole.settled || Boolean(settled);
        whole.resume = whole.resume || Boolean(resume);
        whole.aborted = Boolean(aborted);
        if (payload) whole.parts.push(payload);
        this.partial = more && !aborted ? whole : null;
        if (this.partial) return;
        whole.payload = whole.parts.length ? Buffer.concat(whole.parts) : null;
        this.delivery_count = (this.delivery_count + 1) >>> 0;
        this.credit--;
        this.link.on_transfer(this, whole);
    }

    on_disposition({performative}) {
        const {role, first, last, settled, state} = performative;
        const ids = [];
        const end = ((last === undefined || last === null ? first : last) + 1) >>> 0;
        for (let id = first; id !== end; id = (id + 1) >>> 0) ids.push(id); // ids wrap
        this.link.on_disposition(this, {role, ids, settled: Boolean(settled), state});
    }

    on_detach({performative}) {
        this.link.on_detach(this, performative.closed, performative.error);
    }
}

module.exports = LinkSession;
