import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RAtomicLong;
import org.redisson.api.RBucket;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RMap;
import org.redisson.api.RSemaphore;
import org.redisson.api.RTopic;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/**
 * What Redisson, unchanged, gets from the node at the port given, on keys with the prefix given, and from another node at a
 * second port. Ends with 0 when all is as with Redis.
 */
public final class RedissonClients {
    private static final long WATCHDOG_MS = 900;

    /** It asks for the slots of a cluster, and uses the channels that belong to them. */
    private static boolean isCluster;

    public static void main(String[] words) throws Exception {
        String port = words[0];
        String prefix = words[1];
        isCluster = words[words.length - 1].equals("cluster");
        RedissonClient client = connect(port);
        try {
            switch (words[2]) {
                case "alone" -> {
                    locks(client, prefix);
                    RedissonClient other = connect(words[3]);
                    try {
                        handsOver(client, other, prefix);
                        semaphores(client, other, prefix);
                        latches(client, other, prefix);
                        topics(client, other, prefix);
                    } finally {
                        other.shutdown(0, 5, TimeUnit.SECONDS);
                    }
                    values(client, prefix);
                }
                case "contend" -> contend(client, prefix, Integer.parseInt(words[3]));
                default -> throw new IllegalArgumentException(words[2]);
            }
        } finally {
            client.shutdown(0, 5, TimeUnit.SECONDS);
        }
        System.out.println("done");
    }

    private static RedissonClient connect(String port) {
        Config config = new Config();
        config.setLockWatchdogTimeout(WATCHDOG_MS);
        config.setCodec(new StringCodec());
        String address = "redis://127.0.0.1:" + port;
        if (isCluster) {
            config.useClusterServers().addNodeAddress(address).setTimeout(20_000);
        } else {
            config.useSingleServer().setAddress(address).setTimeout(20_000);
        }
        return Redisson.create(config);
    }

    private static RTopic topic(RedissonClient client, String name) {
        return isCluster ? client.getShardedTopic(name) : client.getTopic(name);
    }

    private static void holds(boolean condition, String what) {
        if (!condition) {
            throw new AssertionError(what);
        }
    }

    private static void same(Object expected, Object got, String what) {
        holds(Objects.equals(expected, got), what + ": " + got + " instead of " + expected);
    }

    private interface Check {
        boolean holds() throws Exception;
    }

    private static void until(String what, Check check) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (!check.holds()) {
            holds(System.nanoTime() < end, "waited in vain: " + what);
            Thread.onSpinWait();
        }
    }

    /** In another thread, which is another owner. */
    private static <T> T elsewhere(java.util.concurrent.Callable<T> callable) throws Exception {
        CompletableFuture<T> done = new CompletableFuture<>();
        Thread thread = new Thread(() -> {
            try {
                done.complete(callable.call());
            } catch (Throwable error) {
                done.completeExceptionally(error);
            }
        });
        thread.start();
        return done.get(30, TimeUnit.SECONDS);
    }

    private static void locks(RedissonClient client, String prefix) throws Exception {
        RLock lock = client.getLock(prefix + "lock");
        lock.lock();
        holds(lock.isLocked() && lock.isHeldByCurrentThread(), "it is held");
        lock.lock();
        same(2, lock.getHoldCount(), "held twice");
        holds(!elsewhere(lock::tryLock), "another thread does not get it");
        holds(!elsewhere(() -> lock.tryLock(200, TimeUnit.MILLISECONDS)), "not by waiting a little either");
        same(false, elsewhere(lock::isHeldByCurrentThread), "held by another thread");

        // The watchdog renews the lease after a third of it: the remaining time falls, and then rises again.
        long first = lock.remainTimeToLive();
        holds(first > 0 && first <= WATCHDOG_MS, "it has a lease: " + first);
        for (int renewals = 0; renewals < 3; renewals++) {
            long[] least = {Long.MAX_VALUE};
            until("the lease is renewed", () -> {
                long left = lock.remainTimeToLive();
                holds(left > 0, "it is still held");
                boolean isRenewed = left > least[0] + 100;
                least[0] = Math.min(least[0], left);
                return isRenewed;
            });
        }

        lock.unlock();
        holds(lock.isLocked(), "it was taken twice");
        lock.unlock();
        holds(!lock.isLocked(), "it is free");
        try {
            elsewhere(() -> {
                lock.unlock();
                return null;
            });
            throw new AssertionError("a stranger has unlocked it");
        } catch (java.util.concurrent.ExecutionException error) {
            holds(error.getCause() instanceof IllegalMonitorStateException, "refused: " + error);
        }

        // A lock with an explicit lease is not renewed.
        holds(lock.tryLock(0, 300, TimeUnit.MILLISECONDS), "a lease of 300 ms");
        until("the lease ends", () -> !lock.isLocked());
        lock.lock(60, TimeUnit.SECONDS);
        holds(elsewhere(lock::forceUnlock), "by force");
        holds(!lock.isLocked(), "it is free");

        RFencedLock fenced = client.getFencedLock(prefix + "fenced");
        long token = fenced.lockAndGetToken();
        fenced.unlock();
        holds(fenced.lockAndGetToken() > token, "tokens grow");
        fenced.unlock();
    }

    /** A channel notifies waiting clients that the lock is free. */
    private static void handsOver(RedissonClient client, RedissonClient other, String prefix) throws Exception {
        for (int turn = 0; turn < 5; turn++) {
            RLock lock = client.getLock(prefix + "handed");
            RLock same = other.getLock(prefix + "handed");
            lock.lock(60, TimeUnit.SECONDS);
            CompletableFuture<Long> got = new CompletableFuture<>();
            Thread waiter = new Thread(() -> {
                try {
                    // It would poll only at the end of the lease: in a minute.
                    same.lock(60, TimeUnit.SECONDS);
                    got.complete(System.nanoTime());
                    same.unlock();
                } catch (Throwable error) {
                    got.completeExceptionally(error);
                }
            });
            waiter.start();
            String channel = "redisson_lock__channel:{" + prefix + "handed}";
            until("it has subscribed", () -> topic(other, channel).countSubscribers() > 0);
            long freed = System.nanoTime();
            lock.unlock();
            long taken = got.get(20, TimeUnit.SECONDS) - freed;
            waiter.join();
            System.out.println("handed over in " + taken / 1000 + " us");
        }
    }

    private static void semaphores(RedissonClient client, RedissonClient other, String prefix) throws Exception {
        RSemaphore semaphore = client.getSemaphore(prefix + "semaphore");
        semaphore.delete();
        holds(semaphore.trySetPermits(2), "permits are set");
        holds(!semaphore.trySetPermits(3), "once only");
        semaphore.acquire();
        holds(semaphore.tryAcquire(), "a second one");
        holds(!semaphore.tryAcquire(), "no third");
        RSemaphore same = other.getSemaphore(prefix + "semaphore");
        CompletableFuture<Boolean> waits = CompletableFuture.supplyAsync(() -> {
            try {
                return same.tryAcquire(20, TimeUnit.SECONDS);
            } catch (InterruptedException error) {
                return false;
            }
        });
        String channel = "redisson_sc:{" + prefix + "semaphore}";
        until("it has subscribed", () -> topic(other, channel).countSubscribers() > 0);
        semaphore.release();
        holds(waits.get(20, TimeUnit.SECONDS), "who waits gets it");
        same(0, semaphore.availablePermits(), "none is left");
        semaphore.release(2);
        same(2, semaphore.drainPermits(), "all are taken");
    }

    private static void latches(RedissonClient client, RedissonClient other, String prefix) throws Exception {
        RCountDownLatch latch = client.getCountDownLatch(prefix + "latch");
        latch.delete();
        holds(latch.trySetCount(2), "the count is set");
        holds(!latch.trySetCount(5), "once only");
        CompletableFuture<Boolean> waits = CompletableFuture.supplyAsync(() -> {
            try {
                return client.getCountDownLatch(prefix + "latch").await(20, TimeUnit.SECONDS);
            } catch (InterruptedException error) {
                return false;
            }
        });
        RCountDownLatch same = other.getCountDownLatch(prefix + "latch");
        same.countDown();
        same(1L, latch.getCount(), "one is left");
        same.countDown();
        holds(waits.get(20, TimeUnit.SECONDS), "who waits goes on");
    }

    private static void topics(RedissonClient client, RedissonClient other, String prefix) throws Exception {
        RTopic topic = topic(client, prefix + "topic");
        CompletableFuture<String> heard = new CompletableFuture<>();
        topic.addListener(String.class, (channel, message) -> heard.complete(channel + "=" + message));
        RTopic same = topic(other, prefix + "topic");
        same(1L, topic.countSubscribers(), "listeners of its own node");
        same.publish("news");
        same(prefix + "topic=news", heard.get(20, TimeUnit.SECONDS), "what was heard");
        topic.removeAllListeners();
        until("no client subscribes", () -> topic.countSubscribers() == 0);
    }

    private static void values(RedissonClient client, String prefix) {
        RBucket<String> bucket = client.getBucket(prefix + "bucket");
        bucket.set("one");
        same("one", bucket.get(), "a bucket");
        holds(bucket.compareAndSet("one", "two"), "compare and set");
        holds(!bucket.compareAndSet("one", "three"), "compare and set");
        same("two", bucket.getAndSet("four"), "get and set");
        holds(!bucket.setIfAbsent("five"), "it is there");
        same("four", bucket.getAndDelete(), "get and delete");
        holds(!bucket.isExists(), "it is gone");
        bucket.set("six", java.time.Duration.ofSeconds(60));
        long left = bucket.remainTimeToLive();
        holds(left > 0 && left <= 60_000, "it expires: " + left);

        RAtomicLong number = client.getAtomicLong(prefix + "number");
        number.delete();
        same(1L, number.incrementAndGet(), "one more");
        same(11L, number.addAndGet(10), "ten more");
        same(11L, number.getAndDecrement(), "one less");
        holds(number.compareAndSet(10, 20), "compare and set");
        same(20L, number.getAndSet(30), "get and set");
        holds(!number.compareAndSet(10, 20), "compare and set");
        same(30L, number.get(), "a number");

        RMap<String, String> map = client.getMap(prefix + "map");
        map.delete();
        same(null, map.put("a", "1"), "it was not there");
        same("1", map.put("a", "2"), "it was there");
        same(null, map.putIfAbsent("b", "3"), "it was not there");
        same("3", map.putIfAbsent("b", "4"), "it was there");
        holds(map.fastPut("c", "5"), "it is new");
        same(3, map.size(), "fields");
        holds(map.replace("a", "2", "6"), "replaced");
        same("6", map.get("a"), "a value");
        holds(map.containsKey("b") && !map.containsKey("z"), "fields");
        @SuppressWarnings({"unchecked", "rawtypes"})
        Object sum = ((RMap) map).addAndGet("c", 2);
        same("7", sum.toString(), "a sum");
        same("3", map.remove("b"), "removed");
        same(java.util.Set.of("a", "c"), map.readAllKeySet(), "fields");
        same(java.util.Map.of("a", "6", "c", "7"), map.readAllMap(), "all");
        java.util.Set<String> scanned = new java.util.HashSet<>();
        map.keySet().forEach(scanned::add);
        same(java.util.Set.of("a", "c"), scanned, "by a scan");
    }

    /** Adds to a number in two steps, with the lock: what is lost is missed. */
    private static void contend(RedissonClient client, String prefix, int rounds) {
        RLock lock = client.getLock(prefix + "contended");
        RBucket<String> sum = client.getBucket(prefix + "sum");
        for (int round = 0; round < rounds; round++) {
            lock.lock();
            try {
                String before = sum.get();
                sum.set(String.valueOf((before == null ? 0 : Integer.parseInt(before)) + 1));
            } finally {
                lock.unlock();
            }
        }
    }
}
