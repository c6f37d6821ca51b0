// A share consumer that prints the value of each record that it gets, and accepts it; until it is killed.
//
//   java -cp kafka-clients.jar ShareReader.java BOOTSTRAP TOPIC GROUP
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringDeserializer;

public class ShareReader {
    public static void main(String[] args) {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("group.id", args[2]);
        config.put("key.deserializer", StringDeserializer.class.getName());
        config.put("value.deserializer", StringDeserializer.class.getName());
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(config)) {
            consumer.subscribe(List.of(args[1]));
            while (true) {
                try {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                        System.out.println(record.value());
                    }
                    System.out.flush();
                } catch (KafkaException error) {
                    System.err.println(error); // the next poll goes on
                }
            }
        }
    }
}
