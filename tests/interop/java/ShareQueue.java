// Drives Java's share consumers by commands on standard input; one JSON line answers each.
//
//   java -cp kafka-clients.jar ShareQueue.java BROKER
//   open NAME GROUP TOPIC MODE [key=value ...]   MODE: implicit or explicit
//   poll NAME COUNT TIMEOUT_MS                   until COUNT records have come (explicit: from one poll only)
//   ack NAME TYPE OFFSET...                      ACCEPT RELEASE REJECT RENEW, records of the last poll
//   commit NAME
//   close NAME
//   groups                                       what the admin client says of the share groups
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public class ShareQueue {
    static final Map<String, KafkaShareConsumer<String, String>> consumers = new HashMap<>();
    static final Map<String, Map<Long, ConsumerRecord<String, String>>> last = new HashMap<>();
    static String broker;

    public static void main(String[] args) throws Exception {
        broker = args[0];
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = perform(line.trim().split(" "));
            } catch (Exception error) {
                answer = "{\"error\": \"" + error.getClass().getSimpleName() + ": "
                    + String.valueOf(error.getMessage()).replace("\"", "'").replace("\n", " ") + "\"}";
            }
            System.out.println(answer);
            System.out.flush();
        }
    }

    static String perform(String[] words) throws Exception {
        switch (words[0]) {
            case "open": return open(words);
            case "poll": return poll(words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]));
            case "ack": return ack(words);
            case "commit": return commit(words[1]);
            case "close":
                consumers.remove(words[1]).close(Duration.ofSeconds(10));
                return "{}";
            case "groups": return groups();
            default: throw new IllegalArgumentException(words[0]);
        }
    }

    static String open(String[] words) {
        Properties config = new Properties();
        config.put("bootstrap.servers", broker);
        config.put("group.id", words[2]);
        config.put("share.acknowledgement.mode", words[4]);
        config.put("key.deserializer", StringDeserializer.class.getName());
        config.put("value.deserializer", StringDeserializer.class.getName());
        for (int i = 5; i < words.length; i++) {
            int at = words[i].indexOf('=');
            config.put(words[i].substring(0, at), words[i].substring(at + 1));
        }
        KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(config);
        consumer.subscribe(List.of(words[3]));
        consumers.put(words[1], consumer);
        return "{}";
    }

    static String poll(String name, int count, long timeoutMs) {
        KafkaShareConsumer<String, String> consumer = consumers.get(name);
        Map<Long, ConsumerRecord<String, String>> polled = new TreeMap<>();
        List<String> shown = new ArrayList<>();
        long deadline = System.currentTimeMillis() + timeoutMs;
        do {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
            for (ConsumerRecord<String, String> record : records) {
                polled.put(record.offset(), record);
                shown.add(String.format("{\"partition\": %d, \"offset\": %d, \"value\": \"%s\", \"delivery\": %d}",
                    record.partition(), record.offset(), record.value(), record.deliveryCount().orElse((short) -1)));
            }
            if (!records.isEmpty() && shown.size() >= count) {
                break;
            }
        } while (shown.size() < count && System.currentTimeMillis() < deadline);
        last.put(name, polled);
        return "{\"records\": [" + String.join(", ", shown) + "]}";
    }

    static String ack(String[] words) {
        AcknowledgeType type = AcknowledgeType.valueOf(words[2]);
        for (int i = 3; i < words.length; i++) {
            consumers.get(words[1]).acknowledge(last.get(words[1]).get(Long.parseLong(words[i])), type);
        }
        return "{}";
    }

    static String commit(String name) {
        Map<String, String> results = new TreeMap<>();
        consumers.get(name).commitSync(Duration.ofSeconds(10)).forEach((partition, error) ->
            results.put(String.valueOf(partition.partition()),
                error.map(e -> e.getClass().getSimpleName()).orElse("")));
        List<String> shown = new ArrayList<>();
        results.forEach((partition, error) -> shown.add("\"" + partition + "\": \"" + error + "\""));
        return "{\"committed\": {" + String.join(", ", shown) + "}}";
    }

    static String groups() throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", broker);
        List<String> shown = new ArrayList<>();
        try (Admin admin = Admin.create(config)) {
            List<String> names = new ArrayList<>();
            admin.listGroups().all().get().forEach(group -> {
                if (group.type().map(Object::toString).orElse("").equals("Share")) {
                    names.add(group.groupId());
                }
            });
            for (String name : names) {
                var described = admin.describeShareGroups(List.of(name)).all().get().get(name);
                Map<TopicPartition, SharePartitionOffsetInfo> offsets = admin
                    .listShareGroupOffsets(Map.of(name, new ListShareGroupOffsetsSpec()))
                    .partitionsToOffsetInfo(name).get();
                List<String> rows = new ArrayList<>();
                offsets.forEach((partition, info) -> rows.add(info == null ? "null" : String.format(
                    "{\"partition\": %d, \"start\": %d, \"lag\": %d}",
                    partition.partition(), info.startOffset(), info.lag().orElse(-1L))));
                shown.add(String.format("\"%s\": {\"state\": \"%s\", \"members\": %d, \"offsets\": [%s]}",
                    name, described.groupState(), described.members().size(), String.join(", ", rows)));
            }
        }
        return "{" + String.join(", ", shown) + "}";
    }
}
