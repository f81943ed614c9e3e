// Checks what unmodified lock libraries for Go get from the node with the given port, for keys with a prefix.
// Exits with 0 if everything is as with Redis.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func must(holds bool, what string) {
	if !holds {
		fmt.Println("does not hold:", what)
		os.Exit(1)
	}
}

func succeeds(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

// Reads and writes separately, under a lock: no addition is lost.
func countsExactly(client *redis.Client, key string, locked func(func())) {
	succeeds(client.Set(ctx, key, 0, 0).Err())
	var workers sync.WaitGroup
	for worker := 0; worker < 4; worker++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for i := 0; i < 10; i++ {
				locked(func() {
					value, err := client.Get(ctx, key).Int()
					succeeds(err)
					succeeds(client.Set(ctx, key, value+1, 0).Err())
				})
			}
		}()
	}
	workers.Wait()
	value, err := client.Get(ctx, key).Int()
	succeeds(err)
	must(value == 40, "40 additions, and not "+strconv.Itoa(value))
}

func withRedislock(client *redis.Client, prefix string) {
	locker := redislock.New(client)
	key := prefix + "redislock"
	held, err := locker.Obtain(ctx, key, time.Minute, &redislock.Options{Metadata: "mine"})
	succeeds(err)
	_, err = locker.Obtain(ctx, key, time.Minute, nil)
	must(errors.Is(err, redislock.ErrNotObtained), "a lock is obtained once")
	left, err := held.TTL(ctx)
	succeeds(err)
	must(left > 50*time.Second && held.Metadata() == "mine", "a time to live and the metadata")
	succeeds(held.Refresh(ctx, 2*time.Minute, nil))
	left, err = held.TTL(ctx)
	succeeds(err)
	must(left > 100*time.Second, "a refreshed time to live")
	succeeds(held.Release(ctx))
	must(errors.Is(held.Release(ctx), redislock.ErrLockNotHeld), "a lock is released once")
	retry := &redislock.Options{RetryStrategy: redislock.LinearBackoff(2 * time.Millisecond)}
	countsExactly(client, prefix+"redislock:count", func(work func()) {
		held, err := locker.Obtain(ctx, key, time.Minute, retry)
		succeeds(err)
		work()
		succeeds(held.Release(ctx))
	})
}

func withRedsync(client *redis.Client, prefix string) {
	locks := redsync.New(goredis.NewPool(client))
	options := []redsync.Option{
		redsync.WithExpiry(time.Minute), redsync.WithTries(2000), redsync.WithRetryDelay(2 * time.Millisecond),
	}
	key := prefix + "redsync"
	held := locks.NewMutex(key, options...)
	succeeds(held.Lock())
	must(locks.NewMutex(key, options...).TryLock() != nil, "a lock is taken once")
	extended, err := held.Extend()
	must(extended && err == nil, "its holder extends it")
	valid, err := held.Valid()
	must(valid && err == nil, "it is valid")
	released, err := held.Unlock()
	must(released && err == nil, "its holder releases it")
	released, err = held.Unlock()
	must(!released && err != nil, "it is released once")
	countsExactly(client, prefix+"redsync:count", func(work func()) {
		mutex := locks.NewMutex(key, options...)
		succeeds(mutex.Lock())
		work()
		_, err := mutex.Unlock()
		succeeds(err)
	})
}

func main() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1]})
	withRedislock(client, os.Args[2])
	withRedsync(client, os.Args[2])
}
