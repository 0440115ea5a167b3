import java.io.*;
import java.net.*;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.util.*;

/** One connection to a router: frames, sessions, heartbeats. Its thread reads, and queues what it has read. */
final class Connection extends Thread {
    private static final byte[] HEADER = {'A', 'M', 'Q', 'P', 0, 1, 0, 0};
    private static final int FRAME = 1 << 20, WINDOW = Integer.MAX_VALUE;

    /** A session. Each attach has its own, so what is left of an earlier one is void with its session. */
    static final class Session {
        final double at = Client.uptime();  // when its begin was sent
        int channel;
        boolean ended;
        long nextIncoming, nextOutgoing, window;
    }

    final URI router;
    boolean open, closed;
    int peerFrame = 512;
    private final Client client;
    private final Socket socket = new Socket();
    private final ByteArrayOutputStream out = new ByteArrayOutputStream();
    private final Session[] sessions = new Session[256];
    private final Map<Integer, Session> peers = new HashMap<>();
    private final long since = System.nanoTime();
    private volatile long read = since;
    private long written = since, heartbeat = Long.MAX_VALUE;

    Connection(URI router, Client client) {
        this.router = router;
        this.client = client;
        setDaemon(true);
        start();
    }

    @Override
    public void run() {
        try {
            socket.setTcpNoDelay(true);
            socket.connect(new InetSocketAddress(router.getHost(), router.getPort()), 5000);
            client.events.add(() -> client.connected(this));
            DataInputStream in = new DataInputStream(new BufferedInputStream(socket.getInputStream(), 1 << 16));
            if (!Arrays.equals(in.readNBytes(8), HEADER)) throw new IOException("not AMQP 1.0 without SASL");
            while (true) {
                int size = in.readInt() - 4;
                if (size < 4 || size > FRAME) throw new IOException("a frame of " + size);
                ByteBuffer frame = ByteBuffer.wrap(in.readNBytes(size));
                read = System.nanoTime();
                int channel = frame.getShort(2) & 0xffff;
                frame.position(frame.get(0) * 4 - 4);
                if (!frame.hasRemaining()) continue;
                Amqp.Described performative = (Amqp.Described) Amqp.read(frame);
                client.events.add(() -> client.frame(this, channel, performative, frame));
            }
        } catch (IOException | BufferUnderflowException error) {
            client.events.add(() -> client.lost(this, error.toString()));
        }
    }

    void sayOpen(String container) {
        out.writeBytes(HEADER);
        send(0, Amqp.OPEN, container, router.getHost(), FRAME, (short) 255, 8000);
    }

    void opened(Amqp.Described open) {
        this.open = true;
        peerFrame = (int) Math.min(open.number(2, FRAME), FRAME);
        if (open.number(4, 0) > 0) heartbeat = open.number(4, 0) * 500_000;
    }

    Session begin() {
        Session session = new Session();
        while (sessions[session.channel] != null) session.channel++;
        sessions[session.channel] = session;
        send(session.channel, Amqp.BEGIN, null, 0, WINDOW, WINDOW, 0);
        return session;
    }

    Session begun(int peer, Amqp.Described begin) {
        Session session = sessions[(int) begin.number(0, 0)];
        peers.put(peer, session);
        session.nextIncoming = begin.number(1, 0);
        session.window = begin.number(2, 0);
        return session;
    }

    Session session(int peer) {
        return peers.get(peer);
    }

    void end(Session session) {
        if (!session.ended) send(session.channel, Amqp.END);
        session.ended = true;
    }

    void ended(int peer) {
        Session session = peers.remove(peer);
        end(session);
        sessions[session.channel] = null;
    }

    /** A flow of a session (no fields), or of its link: delivery-count, link-credit, available, drain. */
    void flow(Session session, Object... link) {
        Object[] fields = {(int) session.nextIncoming, WINDOW, (int) session.nextOutgoing, WINDOW,
            link.length > 0 ? 0 : null, null, null, null, null};
        System.arraycopy(link, 0, fields, 5, link.length);
        send(session.channel, Amqp.FLOW, fields);
    }

    /** What the peer's flow says of its session's window. */
    void flowed(Session session, Amqp.Described flow) {
        session.window = (int) (flow.number(0, 0) + flow.number(1, 0) - session.nextOutgoing);
        if (flow.field(4) == null && flow.flag(9)) flow(session);
    }

    /** Say close; what is said is written at the end of the turn, and then the connection is dropped. */
    void close() {
        send(0, Amqp.CLOSE);
        closed = true;
    }

    void send(int channel, int code, Object... fields) {
        out.writeBytes(Amqp.frame(channel, code, fields, null));
    }

    void transfer(Session session, ByteBuffer payload, Object... fields) {
        out.writeBytes(Amqp.frame(session.channel, Amqp.TRANSFER, fields, payload));
        session.nextOutgoing++;
        session.window--;
    }

    /** Write what was said; or an empty frame when it is time for a heartbeat. */
    void flush() {
        long now = System.nanoTime();
        if (now - written > heartbeat) out.writeBytes(new byte[] {0, 0, 0, 8, 2, 0, 0, 0});
        if (out.size() == 0) return;
        try {
            socket.getOutputStream().write(out.toByteArray());
            written = now;
        } catch (IOException error) {
            client.events.add(() -> client.lost(this, error.toString()));
        }
        out.reset();
    }

    /** Whether it is time to give it up: no open for 10 s, or nothing read for 16 s. */
    boolean silent() {
        return System.nanoTime() - (open ? read : since) > (open ? 16_000_000_000L : 10_000_000_000L);
    }

    void drop() {
        try {
            socket.close();
        } catch (IOException error) {
            System.err.println("close: " + error);
        }
    }
}
