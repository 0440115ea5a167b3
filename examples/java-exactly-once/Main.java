import java.io.*;
import java.nio.file.Path;

/** The contract of `onceway conformance` (docs/write-a-client.md): orders on stdin, what happens on stdout. */
final class Main {
    public static void main(String[] arguments) throws IOException, InterruptedException {
        System.out.println("client publisher subscriber maps journal");
        System.out.flush();
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        String[] role = orders.readLine().split(" ");
        String urls = System.getenv("ONCEWAY_URL");
        Path state = Path.of(System.getenv("ONCEWAY_STATE"));
        Client client = role[0].equals("publisher") ? new Publisher(role[1], urls, state)
            : new Subscriber(role[1], urls, state);
        Thread reader = new Thread(() -> {
            orders.lines().map(line -> line.split(" ")).forEach(words -> client.events.add(() -> {
                if (words[0].equals("stop")) client.stop();
                else client.order(words[0], words[1]);
            }));
            client.events.add(client::stop);
        });
        reader.setDaemon(true);
        reader.start();
        client.run();
    }
}
