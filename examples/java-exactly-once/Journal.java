import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.BiConsumer;
import java.util.zip.CRC32;

/**
 * The durable memory: a map of words, in the order in which they were put, that is written as a log of its changes.
 *
 * A line is a checksum, a key, and its value unless it is removed. What was put is durable when sync() has returned.
 * The first line that is torn ends the log: nothing behind it was durable.
 */
final class Journal {
    private final Map<String, String> entries = new LinkedHashMap<>();
    private final StringBuilder unwritten = new StringBuilder();
    private final Path folder;
    private FileChannel log;
    private long compactAt;

    Journal(Path folder) throws IOException {
        this.folder = Files.createDirectories(folder);
        if (open("lock").tryLock() == null) throw new IOException("another process uses " + folder);
        Path file = folder.resolve("log");
        if (Files.exists(file)) {
            for (String line : Files.readString(file).split("\n")) {
                String[] words = line.split(" ");
                if (words.length < 2 || !line.equals(line(words[1], words.length > 2 ? words[2] : null).strip())) break;
                if (words.length > 2) entries.put(words[1], words[2]);
                else entries.remove(words[1]);
            }
        }
        compact();
    }

    String get(String key, String otherwise) {
        return entries.getOrDefault(key, otherwise);
    }

    long number(String key) {
        return Long.parseLong(get(key, "0"));
    }

    void each(String prefix, BiConsumer<String, String> use) {
        entries.forEach((key, value) -> {
            if (key.startsWith(prefix)) use.accept(key.substring(prefix.length()), value);
        });
    }

    void put(String key, Object value) {
        entries.put(key, value.toString());
        unwritten.append(line(key, value.toString()));
    }

    void remove(String key) {
        if (entries.remove(key) != null) unwritten.append(line(key, null));
    }

    void sync() throws IOException {
        if (unwritten.length() == 0) return;
        append(unwritten);
        if (log.position() > compactAt) compact();
    }

    private void append(StringBuilder lines) throws IOException {
        ByteBuffer octets = StandardCharsets.UTF_8.encode(lines.toString());
        while (octets.hasRemaining()) log.write(octets);
        log.force(false);
        lines.setLength(0);
    }

    /** Begin a new log with what there is, and put it in the place of the old one. */
    private void compact() throws IOException {
        if (log != null) log.close();
        log = open("log.new").truncate(0);
        StringBuilder lines = new StringBuilder();
        entries.forEach((key, value) -> lines.append(line(key, value)));
        append(lines);
        Files.move(folder.resolve("log.new"), folder.resolve("log"), StandardCopyOption.ATOMIC_MOVE);
        try (FileChannel directory = FileChannel.open(folder)) {
            directory.force(true);
        }
        compactAt = 4 * log.position() + (1 << 20);
    }

    private FileChannel open(String name) throws IOException {
        return FileChannel.open(folder.resolve(name), StandardOpenOption.CREATE, StandardOpenOption.WRITE);
    }

    private static String line(String key, String value) {
        String words = value == null ? key : key + " " + value;
        CRC32 sum = new CRC32();
        sum.update(words.getBytes(StandardCharsets.UTF_8));
        return Long.toHexString(sum.getValue()) + " " + words + "\n";
    }
}
