// A file of JSON records, appended and fsynced in groups. One line per record: 8 hex digits of its SHA-256, a space, JSON.
//
// `append` takes a record at once and `sync` resolves when everything appended so far is on disk. A last line that is
// torn (the process died while it wrote) is dropped: nobody was told that it is durable. Damage elsewhere is an error.
// When the file has grown to several times what its records are worth, it is replaced by a snapshot of the owner's state.
'use strict';

const {createHash} = require('crypto');
const fs = require('fs');
const net = require('net');
const path = require('path');

const COMPACT_ABOVE = 1 << 20;

const checksum = text => createHash('sha256').update(text).digest('hex').slice(0, 8);
const line = record => {
    const text = JSON.stringify(record);
    return `${checksum(text)} ${text}\n`;
};

class Journal {
    // `replay(record)` is called for each record in the file; `snapshot()` gives records that amount to all of them.
    static async open(file, replay, snapshot) {
        const journal = new Journal(file, snapshot);
        journal.lock = await lock(journal.file);
        const good = journal._read(replay);
        journal.fd = fs.openSync(journal.file, 'a', 0o600);
        fs.ftruncateSync(journal.fd, good);
        journal.size = good;
        await journal._compact();
        return journal;
    }

    constructor(file, snapshot) {
        this.file = path.join(fs.realpathSync(path.dirname(file)), path.basename(file));
        this.snapshot = snapshot;
        this.lines = [];     // appended and not yet handed to the disk
        this.waiting = [];   // what to call when they are durable
        this.writing = null; // the write that goes on now
        this.compact_at = COMPACT_ABOVE;
        this.closed = false;
    }

    append(record) {
        if (this.closed) return;
        this.lines.push(line(record));
        this._write();
    }

    sync() {
        if (!this.lines.length && !this.writing) return Promise.resolve();
        return new Promise(resolve => {
            this.waiting.push(resolve);
            this._write();
        });
    }

    async close() {
        this.closed = true;
        await this.sync();
        await this.writing;
        fs.closeSync(this.fd);
        this.lock.close();
    }

    _write() {
        if (!this.writing) this.writing = this._write_all();
    }

    async _write_all() {
        await null; // let this turn append the rest of its records
        while (this.lines.length || this.waiting.length) {
            const text = Buffer.from(this.lines.join(''));
            const durable = this.waiting;
            this.lines = [];
            this.waiting = [];
            this.size += text.length;
            if (this.size > this.compact_at) {
                await this._compact();
            } else if (text.length) {
                await write_all(this.fd, text);
            }
            for (const resolve of durable) resolve();
            await null; // who waited appends what follows from it
        }
        this.writing = null;
    }

    async _compact() {
        const text = Buffer.from(Array.from(this.snapshot(), line).join(''));
        const fd = fs.openSync(this.file + '.new', 'w', 0o600);
        await write_all(fd, text);
        fs.renameSync(this.file + '.new', this.file);
        const directory = fs.openSync(path.dirname(this.file), 'r');
        fs.fsyncSync(directory);
        fs.closeSync(directory);
        if (this.fd !== undefined) fs.closeSync(this.fd);
        this.fd = fd;
        this.size = text.length;
        this.compact_at = Math.max(COMPACT_ABOVE, 4 * text.length);
    }

    // Replays the intact records; the offset at which they end.
    _read(replay) {
        const data = fs.existsSync(this.file) ? fs.readFileSync(this.file) : Buffer.alloc(0);
        let start = 0, torn_at = -1;
        while (start < data.length) {
            const newline = data.indexOf(10, start);
            const end = newline < 0 ? data.length : newline;
            const text = data.toString('utf8', start + 9, end);
            const intact = newline >= 0 && data.toString('latin1', start, start + 8) === checksum(text);
            if (intact && torn_at >= 0) throw new Error(`${this.file}: damaged at byte ${torn_at}`);
            if (intact) replay(JSON.parse(text));
            else if (torn_at < 0) torn_at = start;
            start = end + 1;
        }
        return torn_at < 0 ? data.length : torn_at;
    }
}

// A failure to write ends the process: what is durable is not known any more, and the journal tells the next one.
function write_all(fd, data) {
    return new Promise(resolve => {
        const fail = error => { if (error) throw error; };
        const write = rest => fs.write(fd, rest, (error, written) => {
            fail(error);
            if (written < rest.length) write(rest.subarray(written));
            else fs.fdatasync(fd, error => { fail(error); resolve(); });
        });
        write(data);
    });
}

// One process per journal: a Linux abstract socket, which the kernel frees however its process ends.
function lock(file) {
    return new Promise((resolve, reject) => {
        const server = net.createServer().unref();
        server.once('error', () => reject(new Error(`${file}: in use by another process`)));
        server.listen('\0journal-' + createHash('sha256').update(file).digest('hex'), () => resolve(server));
    });
}

module.exports = Journal;
