import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.storage.Converter;

/** Reads bytes with Kafka Connect's own converters and writes them again: one case a line, as JSON, both ways. */
public class Converters {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode c = JSON.readTree(line);
            Map<String, Object> config = new HashMap<>();
            c.get("config").fields().forEachRemaining(e -> config.put(e.getKey(), e.getValue().asText()));
            ObjectNode result = JSON.createObjectNode();
            try {
                Converter converter =
                    (Converter) Class.forName(c.get("type").asText()).getConstructor().newInstance();
                converter.configure(config, false);
                SchemaAndValue value = converter.toConnectData("t", Base64.getDecoder().decode(c.get("bytes").asText()));
                byte[] bytes = converter.fromConnectData("t", value.schema(), value.value());
                result.put("bytes", bytes == null ? null : Base64.getEncoder().encodeToString(bytes));
            } catch (Exception e) {
                result.put("error", e.toString());
            }
            System.out.println(JSON.writeValueAsString(result));
        }
    }
}
