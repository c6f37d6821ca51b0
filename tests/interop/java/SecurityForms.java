import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;
import org.apache.kafka.common.security.kerberos.KerberosName;
import org.apache.kafka.common.security.kerberos.KerberosShortNamer;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Reads texts of security settings as Apache Kafka reads them. Each line of the input is a kind and its arguments, all but
 * the kind in Base64; each line of the output is "ok" and a result in Base64, or "refused" and the reason in Base64.
 */
public class SecurityForms {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            List<byte[]> given = new ArrayList<>();
            for (int i = 1; i < words.length; i++)
                given.add(Base64.getDecoder().decode(words[i]));
            String answer;
            String outcome = "ok";
            try {
                answer = read(words[0], given);
            } catch (Exception | StackOverflowError e) {
                outcome = "refused";
                answer = String.valueOf(e.getMessage());
            }
            byte[] bytes = answer.getBytes(StandardCharsets.UTF_8);
            System.out.println(outcome + " " + Base64.getEncoder().encodeToString(bytes));
        }
    }

    private static String read(String kind, List<byte[]> given) throws Exception {
        switch (kind) {
            case "principal":
                return SslPrincipalMapper.fromRules(text(given.get(0))).getName(text(given.get(1)));
            case "kerberos":
                List<String> rules = List.of(text(given.get(1)).split("\n"));
                KerberosShortNamer namer = KerberosShortNamer.fromUnparsedRules(text(given.get(0)), rules);
                return namer.shortName(KerberosName.parse(text(given.get(2))));
            case "jaas":
                return jaas(text(given.get(0)));
            case "subject":
                CertificateFactory factory = CertificateFactory.getInstance("X.509");
                X509Certificate certificate =
                    (X509Certificate) factory.generateCertificate(new ByteArrayInputStream(given.get(0)));
                return certificate.getSubjectX500Principal().getName();
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    private static String jaas(String value) {
        JaasContext context = JaasContext.loadClientContext(Map.of("sasl.jaas.config", new Password(value)));
        AppConfigurationEntry entry = context.configurationEntries().get(0);
        String flag = entry.getControlFlag().toString();
        StringBuilder result = new StringBuilder(entry.getLoginModuleName());
        result.append('\n').append(flag.substring(flag.lastIndexOf(' ') + 1).toLowerCase());
        for (Map.Entry<String, ?> option : new TreeMap<>(entry.getOptions()).entrySet())
            result.append('\n').append(option.getKey()).append('=').append(option.getValue());
        return result.toString();
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
