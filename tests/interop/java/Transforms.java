import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;
import org.apache.kafka.connect.transforms.Transformation;

/** Applies Kafka Connect's own transforms: one case a line on stdin, as JSON; one line of results on stdout. */
public class Transforms {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode c = JSON.readTree(line);
            ArrayNode results = JSON.createArrayNode();
            JsonConverter keys = converter(c, true);
            JsonConverter values = converter(c, false);
            for (JsonNode record : c.get("records")) {
                results.add(apply(c, record, keys, values));
            }
            System.out.println(JSON.writeValueAsString(results));
        }
    }

    static JsonConverter converter(JsonNode c, boolean key) {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", c.get("schemas").asBoolean()), key);
        return converter;
    }

    static byte[] bytes(JsonNode node) throws Exception {
        return node == null || node.isNull() ? null : JSON.writeValueAsBytes(node);
    }

    @SuppressWarnings("unchecked")
    static ObjectNode apply(JsonNode c, JsonNode r, JsonConverter keys, JsonConverter values) throws Exception {
        ObjectNode result = JSON.createObjectNode();
        Map<String, Object> config = new HashMap<>();
        c.get("config").fields().forEachRemaining(e -> config.put(e.getKey(), e.getValue().asText()));
        try (Transformation<SinkRecord> t =
                (Transformation<SinkRecord>) Class.forName(c.get("type").asText()).getConstructor().newInstance()) {
            t.configure(config);
            SchemaAndValue key = keys.toConnectData("t", bytes(r.get("key")));
            SchemaAndValue value = values.toConnectData("t", bytes(r.get("value")));
            SinkRecord record = new SinkRecord(r.get("topic").asText(), r.get("partition").asInt(), key.schema(),
                key.value(), value.schema(), value.value(), r.get("offset").asLong(), r.get("timestamp").asLong(),
                TimestampType.CREATE_TIME);
            for (JsonNode header : r.get("headers")) {
                record.headers().addString(header.get(0).asText(), header.get(1).asText());
            }
            SinkRecord out = t.apply(record);
            if (out == null) {
                return result;
            }
            result.put("topic", out.topic());
            result.set("key", JSON.readTree(text(keys.fromConnectData("t", out.keySchema(), out.key()))));
            result.set("value", JSON.readTree(text(values.fromConnectData("t", out.valueSchema(), out.value()))));
            ArrayNode headers = result.putArray("headers");
            SimpleHeaderConverter converter = new SimpleHeaderConverter();
            for (Header header : out.headers()) {
                byte[] bytes = converter.fromConnectHeader("t", header.key(), header.schema(), header.value());
                headers.add(JSON.createArrayNode().add(header.key()).add(bytes == null ? null : new String(bytes)));
            }
        } catch (Exception e) {
            result.removeAll();
            result.put("error", e.toString());
        }
        return result;
    }

    static String text(byte[] bytes) {
        return bytes == null ? "null" : new String(bytes, StandardCharsets.UTF_8);
    }
}
