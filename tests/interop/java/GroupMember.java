// One member of a consumer group in a process of its own. What happens to it is one JSON line each on standard output,
// stamped with the machine's monotonic clock (nanoTime), so that the lines of several processes can be put in order.
//
//   java -cp JARS GroupMember [--topics=a,b | --pattern=java regex | --re2j=regex] consumer.config=value ...
//   standard input: "join" subscribes and begins to poll; "close" or the end closes the consumer.
//
// It commits what it has read after each poll, and what it gives up when it is told to.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class GroupMember implements ConsumerRebalanceListener {
    private final Map<String, String> options = new HashMap<>();
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final Map<TopicPartition, OffsetAndMetadata> unsaved = new HashMap<>();
    private final CountDownLatch joining = new CountDownLatch(1);
    private volatile boolean closing;

    GroupMember(String[] args) {
        Map<String, Object> config = new HashMap<>();
        for (String arg : args) {
            String[] pair = arg.split("=", 2);
            if (pair[0].startsWith("--")) options.put(pair[0], pair[1]);
            else config.put(pair[0], pair[1]);
        }
        consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    public static void main(String[] args) throws Exception {
        GroupMember member = new GroupMember(args);
        Thread commands = new Thread(member::obey, "commands");
        commands.setDaemon(true);
        commands.start();
        say("ready", "");
        member.joining.await();
        int status = 0;
        try (member.consumer) {
            if (!member.closing) member.subscribe();
            while (!member.closing) member.step();
        } catch (KafkaException fatal) {
            say("failed", ", \"error\": \"" + fatal.getClass().getSimpleName() + "\"");
            status = 1;
        }
        say("closed", "");
        System.exit(status);
    }

    private void obey() {
        try (var lines = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = lines.readLine(); line != null && !line.equals("close"); line = lines.readLine()) {
                if (line.equals("join")) joining.countDown();
            }
        } catch (java.io.IOException gone) {
            System.err.println(gone);
        }
        closing = true;
        joining.countDown();
    }

    private void subscribe() {
        if (options.containsKey("--topics")) consumer.subscribe(List.of(options.get("--topics").split(",")), this);
        else if (options.containsKey("--pattern")) consumer.subscribe(Pattern.compile(options.get("--pattern")), this);
        else consumer.subscribe(new SubscriptionPattern(options.get("--re2j")), this);
    }

    private void step() {
        var records = consumer.poll(Duration.ofMillis(100));
        if (records.isEmpty() && unsaved.isEmpty()) return;
        List<String> read = new ArrayList<>();
        for (TopicPartition partition : records.partitions()) {
            var run = records.records(partition);
            long from = run.get(0).offset();
            long next = from;
            for (var record : run) if (record.offset() == next) next++;
            if (next - from != run.size()) throw new IllegalStateException("a hole in " + partition + " after " + next);
            read.add("\"" + partition + "\": [" + from + ", " + next + "]");
            unsaved.put(partition, new OffsetAndMetadata(next));
        }
        if (!read.isEmpty()) say("read", ", \"offsets\": {" + String.join(", ", read) + "}");
        commit(new HashMap<>(unsaved));
    }

    private void commit(Map<TopicPartition, OffsetAndMetadata> offsets) {
        if (offsets.isEmpty()) return;
        Map<String, Long> shown = new TreeMap<>();
        offsets.forEach((partition, offset) -> shown.put("\"" + partition + "\"", offset.offset()));
        String detail = ", \"offsets\": {" + shown.entrySet().stream()
            .map(entry -> entry.getKey() + ": [" + entry.getValue() + "]").collect(Collectors.joining(", ")) + "}";
        say("committing", detail);
        try {
            consumer.commitSync(offsets);
            say("committed", detail);
            offsets.forEach(unsaved::remove);
        } catch (KafkaException refused) {
            say("refused", detail + ", \"error\": \"" + refused.getClass().getSimpleName() + "\"");
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        say("assigned", list(partitions));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        Map<TopicPartition, OffsetAndMetadata> given = new HashMap<>(unsaved);
        given.keySet().retainAll(partitions);
        commit(given);
        unsaved.keySet().removeAll(partitions);
        say("revoked", list(partitions));
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        unsaved.keySet().removeAll(partitions);
        say("lost", list(partitions));
    }

    private String list(Collection<TopicPartition> partitions) {
        return ", \"generation\": " + consumer.groupMetadata().generationId() + ", \"partitions\": ["
            + partitions.stream().map(p -> "\"" + p + "\"").sorted().collect(Collectors.joining(", ")) + "]";
    }

    private static synchronized void say(String event, String detail) {
        System.out.println("{\"at\": " + System.nanoTime() + ", \"event\": \"" + event + "\"" + detail + "}");
        System.out.flush();
    }
}
