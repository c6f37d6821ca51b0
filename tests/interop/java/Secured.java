// A Java client with security settings (kafka-clients), for test_interop_security.py.
//
//   java -cp JARS Secured.java copy TOPIC COUNT CONFIG...   writes and reads COUNT records with each properties file,
//                                                           and prints the values that it has read: {"read": [...]}
//   java -cp JARS Secured.java write TOPIC CONFIG           writes until it fails; prints one JSON object every 0.2 s:
//                                                           {"acknowledged": 10, "renewed": 2, "failure": ""}
import java.io.FileReader;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;

public class Secured {
    public static void main(String[] args) throws Exception {
        if (args[0].equals("write")) {
            write(args[1], read(args[2]));
            return;
        }
        int count = Integer.parseInt(args[2]);
        for (int i = 3; i < args.length; i++) {
            copy(args[1] + "-" + i, count, read(args[i]));
        }
    }

    static Map<String, Object> read(String path) throws Exception {
        Properties found = new Properties();
        try (var file = new FileReader(path)) {
            found.load(file);
        }
        Map<String, Object> config = new HashMap<>();
        for (String name : found.stringPropertyNames()) config.put(name, found.getProperty(name));
        return config;
    }

    static void copy(String topic, int count, Map<String, Object> config) throws Exception {
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < count; i++) sent.add(producer.send(new ProducerRecord<>(topic, Integer.toString(i))));
            for (var future : sent) future.get();
        }
        config.put("group.id", topic);
        config.put("auto.offset.reset", "earliest");
        List<String> values = new ArrayList<>();
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            long deadline = System.currentTimeMillis() + 60_000;
            while (values.size() < count) {
                if (System.currentTimeMillis() > deadline) throw new IllegalStateException("saw only " + values.size());
                for (var record : consumer.poll(Duration.ofMillis(500))) values.add(record.value());
            }
            consumer.commitSync();
        }
        System.out.println("{\"read\": [" + String.join(", ", values) + "]}");
    }

    static void write(String topic, Map<String, Object> config) throws Exception {
        config.put("linger.ms", 5);
        long acknowledged = 0;
        String failure = "";
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            while (failure.isEmpty()) {
                try {
                    List<Future<RecordMetadata>> sent = new ArrayList<>();
                    for (int i = 0; i < 10; i++) sent.add(producer.send(new ProducerRecord<>(topic, "v")));
                    for (var future : sent) {
                        future.get();
                        acknowledged++;
                    }
                    Thread.sleep(200);
                } catch (ExecutionException error) {
                    failure = error.getCause().getClass().getSimpleName();
                } catch (org.apache.kafka.common.KafkaException error) {
                    failure = error.getClass().getSimpleName();
                }
                System.out.printf("{\"acknowledged\": %d, \"renewed\": %d, \"failure\": \"%s\"}%n",
                    acknowledged, renewed(producer), failure);
                System.out.flush();
            }
            producer.close(Duration.ZERO);
        }
    }

    static long renewed(Producer<?, ?> producer) {
        double total = 0;
        for (var metric : producer.metrics().values()) {
            if (metric.metricName().name().equals("successful-reauthentication-total")
                    && metric.metricName().group().equals("producer-metrics")) {
                total += (Double) metric.metricValue();
            }
        }
        return (long) total;
    }
}
