import java.io.IOException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.Stream;

/**
 * What a publisher and a subscriber have in common: one identity that is kept attached at some router (docs/wire.md).
 *
 * One thread does everything, in turns. A turn takes the events that have come and changes the state, the journal and
 * the frames that wait. Then it makes the journal durable, then sends the frames, then tells the application. So what a
 * frame or a line says is durable before.
 */
abstract class Client {
    static final Amqp.Symbol EPOCH = new Amqp.Symbol("onceway:epoch");
    private static final Set<String> FINAL = Set.of("amqp:not-allowed", "amqp:not-implemented", "amqp:not-found",
        "amqp:invalid-field", "amqp:decode-error", "amqp:unauthorized-access", "amqp:illegal-state",
        "amqp:link:message-size-exceeded", "amqp:link:transfer-limit-exceeded", "amqp:frame-size-too-small",
        "amqp:connection:framing-error", "onceway:subscription-removed", "onceway:subscription-undeclared",
        "onceway:subscription-exists");
    private static final long NOW = Long.MIN_VALUE, NEVER = Long.MAX_VALUE;  // by System.nanoTime()

    /** One attach, with what is void when it is over. */
    static final class Link {
        final double at = uptime();
        final Map<ByteBuffer, Object> map;  // what it presents; null: it is the first
        final Deque<Map<ByteBuffer, Object>> parts = new ArrayDeque<>();
        Connection.Session session;
        boolean refused, answered, ready, leaving, worked;

        Link(Map<ByteBuffer, Object> map) {
            this.map = map;
        }
    }

    final BlockingQueue<Runnable> events = new LinkedBlockingQueue<>();
    final Journal journal;
    final boolean sender;
    final String name;
    Connection connection;
    Link link;
    long life;  // incarnation or born
    double timeout;  // for how long the network waits, in seconds
    private final String address;
    private final List<URI> routers;
    private final List<String> told = new ArrayList<>();
    private final Map<Connection.Session, Link> questions = new HashMap<>();
    private int router, failures, retries, stolen;
    private long connectAt = NOW, attachAt = NEVER, stopAt = NEVER, namedAt, refusedEpoch;
    private URI named;
    private double askAt, contact, contactWall;  // contact: 0 if there was none
    private String contactBoot;
    private boolean gaveUp, over;

    Client(boolean sender, String address, String urls, Path state) throws IOException {
        this.sender = sender;
        this.address = address;
        name = sender ? "publisher" : "subscriber";
        routers = Stream.of(urls.split(",")).map(URI::create).toList();
        journal = new Journal(state.resolve(name));
        journal.put("container", journal.get("container", "java-" + UUID.randomUUID()));
        String[] words = journal.get("contact", "0,0,,0").split(",");
        contact = Double.parseDouble(words[0]);
        contactWall = Double.parseDouble(words[1]);
        contactBoot = words[2];
        timeout = Double.parseDouble(words[3]);
    }

    /** An order of the application. */
    abstract void order(String verb, String body);

    /** The map of an attach with this epoch, for which life is set; null in a first one. */
    abstract Map<ByteBuffer, Object> map(long epoch);

    /** The attach was answered; the granted timeout. */
    abstract void answered(Amqp.Described attach, long granted);

    /** A flow, transfer or disposition came on the link. */
    abstract void linkFrame(Amqp.Described frame, ByteBuffer payload);

    /** At the end of a turn: say what there is to say. */
    abstract void pump();

    /** Whether this ends a life of this kind of client, so that it attaches again at once. */
    abstract boolean heeds(String condition);

    // Turns.

    void run() throws IOException, InterruptedException {
        while (!over) {
            Runnable event = events.poll(20, TimeUnit.MILLISECONDS);
            for (int i = 0; event != null; event = ++i < 500 ? events.poll() : null) event.run();
            onTime(System.nanoTime());
            if (attached()) pump();
            journal.sync();
            if (connection != null) connection.flush();
            told.forEach(this::tellFirst);
            told.clear();
            if (connection != null && connection.closed) lost(connection, "closed");
        }
    }

    private void onTime(long now) {
        if (now >= stopAt) over = true;
        if (connection != null && connection.silent()) lost(connection, "silence");
        if (connection == null && now >= connectAt) {
            connection = new Connection(named != null ? named : routers.get(router), this);
            named = null;
        }
        if (connection != null && link == null && now >= attachAt) attach();
        if (attached() && link.ready && uptime() >= askAt) {
            questions.put(connection.begin(), link);
            askAt = uptime() + Math.max(1, timeout / 16);
        }
    }

    boolean attached() {
        return link != null && link.answered && !link.leaving;
    }

    /** Tell the application when the journal is durable. */
    void tell(String line) {
        told.add(line);
    }

    /** Tell the application before the journal says so: it may be told again. */
    void tellFirst(String line) {
        System.out.println(line);
        System.out.flush();
    }

    void stop() {
        if (stopAt != NEVER) return;
        stopAt = System.nanoTime() + 5_000_000_000L;
        if (attached()) leave();
        else over = true;
    }

    // The connection.

    void connected(Connection from) {
        if (from == connection) connection.sayOpen(journal.get("container", ""));
    }

    void lost(Connection from, String why) {
        if (from != connection) return;
        System.err.println(connection.router + ": " + why);
        connection.drop();
        connection = null;
        endLink();
        questions.clear();
        attachAt = NEVER;
        router = (router + 1) % routers.size();
        connectAt = gaveUp ? NEVER : named != null ? NOW : later(failures++ / routers.size());
        if (stopAt != NEVER) over = true;
    }

    void frame(Connection from, int channel, Amqp.Described frame, ByteBuffer payload) {
        if (from != connection) return;
        Connection.Session session = connection.session(channel);
        if (frame.code() == Amqp.OPEN) {
            connection.opened(frame);
            failures = 0;
            attachAt = NOW;
        } else if (frame.code() == Amqp.CLOSE) {
            onClose(condition(frame, 0), info(frame, 0));
        } else if (frame.code() == Amqp.BEGIN) {
            session = connection.begun(channel, frame);
            if (!questions.containsKey(session)) return;
            if (questions.remove(session) == link && attached()) contact(session.at);
            connection.end(session);
        } else {
            if (frame.code() == Amqp.END) connection.ended(channel);
            if (link != null && link.session == session) onLink(frame, payload);
        }
    }

    private void onClose(String condition, Map<?, ?> info) {
        boolean again = System.nanoTime() - namedAt < 1_000_000_000L;
        if (info.get(new Amqp.Symbol("network-host")) instanceof String host && !again) {
            named = URI.create("amqp://" + host + ":" + info.get(new Amqp.Symbol("port")));
            namedAt = System.nanoTime();
        }
        endLink();
        connection.close();
        if (FINAL.contains(condition)) giveUp(condition);
    }

    private void onLink(Amqp.Described frame, ByteBuffer payload) {
        if (frame.code() == Amqp.ATTACH) onAttach(frame);
        else if (frame.code() == Amqp.DETACH) onDetach(frame);
        else if (frame.code() == Amqp.END) retry(condition(frame, 0), info(frame, 0));
        else {
            if (frame.code() == Amqp.FLOW) connection.flowed(link.session, frame);
            if (frame.code() == Amqp.TRANSFER) link.session.nextIncoming++;
            if (attached()) linkFrame(frame, payload);
        }
    }

    // The attach and its end.

    private void attach() {
        attachAt = NEVER;
        long least = Math.max(journal.number("epoch"), refusedEpoch) + 1;
        long epoch = Math.max(System.currentTimeMillis() * 1000, least);
        journal.put("epoch", epoch);
        link = new Link(map(epoch));
        int room = connection.peerFrame - Amqp.frame(0, Amqp.ATTACH, fields(Map.of(), true), null).length;
        Map<ByteBuffer, Object> part = link.map == null ? null : new LinkedHashMap<>();
        int size = 0;
        if (link.map != null) {
            for (Map.Entry<ByteBuffer, Object> entry : link.map.entrySet()) {
                int more = Amqp.octets(entry.getKey()).length + Amqp.octets(entry.getValue()).length;
                if (size + more > room) {
                    link.parts.add(part);
                    part = new LinkedHashMap<>();
                    size = 0;
                }
                size += more;
                part.put(entry.getKey(), entry.getValue());
            }
        }
        if (part != null) link.parts.add(part);
        attachPart();
    }

    private void attachPart() {
        link.session = connection.begin();
        Map<ByteBuffer, Object> part = link.parts.poll();
        connection.send(link.session.channel, Amqp.ATTACH, fields(part, !link.parts.isEmpty()));
    }

    private Object[] fields(Map<ByteBuffer, Object> map, boolean incomplete) {
        Object[] waits = {address, 0, new Amqp.Symbol("never"), -1};  // a timeout of 2**32 - 1: as long as possible
        Object source = new Amqp.Described(Amqp.SOURCE, sender ? new Object[0] : waits);
        Object target = new Amqp.Described(Amqp.TARGET, sender ? waits : new Object[] {name});
        Map<Object, Object> properties = Map.of(EPOCH, journal.number("epoch"),
            new Amqp.Symbol(sender ? "onceway:incarnation" : "onceway:born"), life);
        return new Object[] {name, 0, !sender, (byte) 0, (byte) 1, source, target, map, incomplete, sender ? 0 : null,
            null, null, null, properties};
    }

    private void onAttach(Amqp.Described attach) {
        Amqp.Described terminus = (Amqp.Described) attach.field(sender ? 6 : 5);
        link.refused = terminus == null;  // then a detach says why; after a part of a map one says nothing
        if (link.refused || !link.parts.isEmpty()) return;
        Map<?, ?> properties = attach.field(13) instanceof Map<?, ?> map ? map : Map.of();
        Object guarantee = properties.get(new Amqp.Symbol("onceway:guarantee"));
        link.answered = true;
        if (!new Amqp.Symbol("exactly-once").equals(guarantee)) {
            giveUp("the guarantee is " + guarantee);
            return;
        }
        retries = 0;
        answered(attach, terminus.number(3, 0));
        if (!sender || link.map == null || link.map.isEmpty()) contact(link.at);
        askAt = 0;
    }

    private void onDetach(Amqp.Described detach) {
        String condition = condition(detach, 2);
        if (!link.leaving) connection.send(link.session.channel, Amqp.DETACH, 0, detach.flag(1));
        connection.end(link.session);
        if (link.leaving) {
            endLink();
            if (stopAt != NEVER) over = true;
            if (stopAt != NEVER || gaveUp) connection.close();
            else attachAt = NOW;
        } else if (!link.parts.isEmpty() && !link.refused && condition.isEmpty()) attachPart();
        else retry(condition, info(detach, 2));
    }

    private void retry(String condition, Map<?, ?> info) {
        System.err.println(name + " was detached: " + condition);
        boolean worked = endLink();
        attachAt = NOW;
        if (condition.equals("amqp:link:stolen")) {
            if (worked || ++stolen > 4) giveUp("another process uses this identity");
            long known = info.get(EPOCH) instanceof Long number ? number : 0;
            refusedEpoch = known + ThreadLocalRandom.current().nextInt(1 << 20);
            heeds(condition);
        } else if (FINAL.contains(condition)) giveUp(condition);
        else if (!heeds(condition)) attachAt = later(retries++);
    }

    /** Detach, to come back. */
    void leave() {
        link.leaving = true;
        connection.send(link.session.channel, Amqp.DETACH, 0, false);
    }

    /** The attach is over, whether it had worked or not. */
    private boolean endLink() {
        boolean worked = link != null && link.answered && (!sender || link.worked || uptime() - link.at > 5);
        if (worked) stolen = 0;
        link = null;
        return worked;
    }

    private void giveUp(String why) {
        gaveUp = true;
        tell("gave-up " + why);
        attachAt = NEVER;
        if (attached()) leave();
        else if (!connection.closed) connection.close();
    }

    // Time.

    private static long later(int tries) {
        double most = Math.min(5, 0.05 * Math.pow(2, Math.min(tries, 10)));
        double wait = ThreadLocalRandom.current().nextDouble(Math.max(0.05, most / 2), Math.max(0.051, most));
        return System.nanoTime() + (long) (wait * 1e9);
    }

    /** What was sent at this uptime has been answered. */
    private void contact(double at) {
        contact = at;
        contactWall = System.currentTimeMillis() / 1e3 - (uptime() - at);
        contactBoot = words("/proc/sys/kernel/random/boot_id");
        journal.put("contact", contact + "," + contactWall + "," + contactBoot + "," + timeout);
    }

    void forgetContact() {
        contact = 0;
        journal.remove("contact");
    }

    /** Whether the network may have forgotten this client; otherwise is the answer where the clock went back. */
    boolean absentTooLong(boolean otherwise) {
        if (contact == 0) return false;
        boolean sameBoot = contactBoot.equals(words("/proc/sys/kernel/random/boot_id"));
        double absence = sameBoot ? uptime() - contact : System.currentTimeMillis() / 1e3 - contactWall;
        double margin = Math.min(5, timeout / 4);
        return absence < -margin ? otherwise : absence > timeout - margin;
    }

    /** Seconds since the machine was started, those in which it slept among them. */
    static double uptime() {
        return Double.parseDouble(words("/proc/uptime").split(" ")[0]);
    }

    private static String words(String file) {
        try {
            return Files.readString(Path.of(file)).strip();
        } catch (IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }

    private static String condition(Amqp.Described frame, int index) {
        return frame.field(index) instanceof Amqp.Described error ? ((Amqp.Symbol) error.field(0)).name() : "";
    }

    private static Map<?, ?> info(Amqp.Described frame, int index) {
        boolean told = frame.field(index) instanceof Amqp.Described error && error.field(2) != null;
        return told ? (Map<?, ?>) ((Amqp.Described) frame.field(index)).field(2) : Map.of();
    }
}
