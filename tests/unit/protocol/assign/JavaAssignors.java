import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.common.*;

/**
 * Fills in what Kafka's own assignors answer to the cases on standard input. Run by hand, the result is committed:
 * java -cp 'kafka-clients.jar:slf4j-api.jar' JavaAssignors.java < cases > java_assignors.txt
 */
public class JavaAssignors {
    public static void main(String[] args) {
        Scanner in = new Scanner(System.in);
        String assignor = null;
        Map<String, Integer> topics = new HashMap<>();
        Map<String, List<String>> racks = new HashMap<>();
        Map<String, Subscription> members = new HashMap<>();
        while (in.hasNextLine()) {
            String line = in.nextLine();
            String[] words = line.split(" ");
            switch (words[0]) {
                case "case" -> { assignor = words[1]; topics = new HashMap<>(); racks = new HashMap<>(); members = new HashMap<>(); }
                case "topic" -> topics.put(words[1], Integer.parseInt(words[2]));
                case "racks" -> racks.put(words[1], List.of(words[2].split(",")));
                case "member" -> members.put(words[1], subscription(words));
                case "" -> answer(assignor, topics, racks, members);
                default -> { continue; }
            }
            if (!words[0].equals("->")) System.out.println(line);
        }
    }

    static Subscription subscription(String[] words) {
        Map<String, String> f = new HashMap<>();
        for (int i = 2; i < words.length; i++) {
            int eq = words[i].indexOf('=');
            f.put(words[i].substring(0, eq), words[i].substring(eq + 1));
        }
        List<TopicPartition> owned = new ArrayList<>();
        for (String tp : split(f.get("owned"))) owned.add(partition(tp));
        ByteBuffer data = f.containsKey("data") ? ByteBuffer.wrap(HexFormat.of().parseHex(f.get("data"))) : null;
        Subscription s = new Subscription(split(f.get("topics")), data, owned,
            Integer.parseInt(f.getOrDefault("generation", "-1")), Optional.ofNullable(f.get("rack")));
        s.setGroupInstanceId(Optional.ofNullable(f.get("instance")));
        return s;
    }

    static List<String> split(String text) {
        return text == null || text.isEmpty() ? List.of() : List.of(text.split(","));
    }

    static TopicPartition partition(String text) {
        int dash = text.lastIndexOf('-');
        return new TopicPartition(text.substring(0, dash), Integer.parseInt(text.substring(dash + 1)));
    }

    static void answer(String name, Map<String, Integer> topics, Map<String, List<String>> racks, Map<String, Subscription> members) {
        AbstractPartitionAssignor assignor = switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            default -> new CooperativeStickyAssignor();
        };
        Map<String, List<PartitionInfo>> infos = new HashMap<>();
        topics.forEach((topic, count) -> {
            List<PartitionInfo> list = new ArrayList<>();
            for (int p = 0; p < count; p++) {
                List<String> here = racks.getOrDefault(topic + "-" + p, List.of());
                Node[] nodes = new Node[here.size()];
                for (int i = 0; i < nodes.length; i++) nodes[i] = new Node(i, "h", 1, here.get(i));
                list.add(new PartitionInfo(topic, p, Node.noNode(), nodes, nodes));
            }
            infos.put(topic, list);
        });
        Map<String, List<TopicPartition>> result = assignor.assignPartitions(infos, members);
        for (String member : new TreeSet<>(result.keySet())) {
            StringBuilder out = new StringBuilder("-> ").append(member);
            for (TopicPartition tp : result.get(member)) out.append(' ').append(tp);
            System.out.println(out);
        }
    }
}
