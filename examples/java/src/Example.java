// Quorate with Jedis: go on at another node, write once, hold a lock, take a job.

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.UUID;
import java.util.function.Supplier;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.util.SafeEncoder;

public final class Example {
    private static void check(boolean isSo, String what) {
        if (!isSo) {
            throw new IllegalStateException(what);
        }
    }

    public static void main(String[] nodes) {
        var quorate = new Quorate(
                nodes.length > 0 ? List.of(nodes) : List.of("127.0.0.1:7000", "127.0.0.1:7001", "127.0.0.1:7002"));
        var me = "worker-" + UUID.randomUUID();

        // Write once. Whoever sets the order finds its own value there when it repeats.
        var order = "order:" + UUID.randomUUID();
        var before = quorate.repeat("SET", order, me, "NX", "GET");
        check(before == null || before.equals(me), "the order is " + before + "'s");
        check(me.equals(quorate.repeat("GET", order)), "the order is not ours");
        System.out.println("the order is ours");

        // A lock. To ask again with the same owner gives the same token.
        var tag = "{job:" + UUID.randomUUID() + "}";
        var lock = tag + ":lock";
        var state = tag + ":state";
        var token = quorate.repeat("LOCK", lock, me, "PX", 10_000, "WAIT", 60_000);
        quorate.repeat("SET", state, "begun", "FENCE", lock, token);
        System.out.println("written under the lock: " + quorate.repeat("GET", state));
        quorate.repeat("UNLOCK", lock, token);
        var newer = quorate.repeat("LOCK", lock, "another", "PX", 10_000, "WAIT", 60_000);
        try {
            quorate.repeat("SET", state, "too late", "FENCE", lock, token);
            throw new IllegalStateException("a write with an old token was not refused");
        } catch (JedisDataException refusal) {
            System.out.println("a late write is refused: " + refusal.getMessage().split(" ")[0]);
        }
        quorate.repeat("UNLOCK", lock, newer);

        // A queue. A job may be in it twice, since its LPUSH may have been repeated: what it does must bear that.
        var queue = "{queue:" + me + "}";
        var own = queue + ":own";
        quorate.repeat("LPUSH", queue, "job 1");
        var job = quorate.take(queue, own);
        System.out.println("taken: " + job);
        quorate.repeat("LREM", own, 0, job);
        quorate.repeat("DEL", order, state, queue, own);
        System.out.println("done");
    }
}

/** A connection to one of several nodes: to the next one when it breaks. */
final class Quorate {
    private final List<String> nodes;
    private Jedis client;

    Quorate(List<String> nodes) {
        this.nodes = new ArrayList<>(nodes);
    }

    /** Sends a command. If the connection breaks, its outcome is unknown. */
    String once(Object... words) {
        try {
            if (client == null) {
                // A node answers within command_timeout_ms (5 s). A client that waits for less makes definite answers unknown.
                var config = DefaultJedisClientConfig.builder()
                        .connectionTimeoutMillis(2_000).socketTimeoutMillis(15_000).blockingSocketTimeoutMillis(15_000);
                client = new Jedis(HostAndPort.from(nodes.get(0)), config.build());
            }
            var arguments = new byte[words.length - 1][];
            for (int at = 1; at < words.length; at++) {
                arguments[at - 1] = SafeEncoder.encode(words[at].toString());
            }
            var command = SafeEncoder.encode(words[0].toString());
            var answer = client.sendCommand(() -> command, arguments);
            return answer instanceof byte[] bytes ? SafeEncoder.encode(bytes) : answer == null ? null : answer.toString();
        } catch (JedisConnectionException error) {
            if (client != null) {
                client.close();
                client = null;
            }
            Collections.rotate(nodes, -1);
            throw error;
        }
    }

    /** Sends a command that may be sent twice, until its outcome is known. */
    String repeat(Object... words) {
        return untilKnown(() -> once(words));
    }

    /** Repeats a step until its outcome is known. */
    String untilKnown(Supplier<String> step) {
        var giveUp = Instant.now().plus(Duration.ofMinutes(1));
        while (true) {
            try {
                return step.get();
            } catch (JedisConnectionException | JedisDataException error) {
                var code = error.getMessage().split(" ")[0];
                // UNKNOWN: it may have happened. TRYAGAIN and CLUSTERDOWN: it did not, and it may soon.
                if (error instanceof JedisDataException && !List.of("UNKNOWN", "TRYAGAIN", "CLUSTERDOWN").contains(code)
                        || Instant.now().isAfter(giveUp)) {
                    throw error;
                }
            }
            try {
                Thread.sleep(100);
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    /** Moves a job to the worker's own list. One that is there already was moved by a command of unknown outcome. */
    String take(String queue, String own) {
        while (true) {
            var taken = untilKnown(() -> {
                var job = once("LINDEX", own, -1);
                return job != null ? job : once("BLMOVE", queue, own, "RIGHT", "LEFT", 10);
            });
            if (taken != null) {
                return taken; // Else there was none for ten seconds.
            }
        }
    }
}
