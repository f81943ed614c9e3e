// An application that uses go-redis with the library's usual settings at the node with the given port, in two
// keyspaces, until its input ends. Prints a report as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

var report struct {
	Operations     int      `json:"operations"`
	Unknown        int      `json:"unknown"`
	Errors         []string `json:"errors"`
	LongestPauseMs int64    `json:"longest_pause_ms"`
}

// Returns whether it was done; if not, the outcome is unknown, or an error was recorded.
func ask(run func() error) bool {
	begun := time.Now()
	err := run()
	report.LongestPauseMs = max(report.LongestPauseMs, time.Since(begun).Milliseconds())
	switch {
	case err == nil:
		report.Operations++
		return true
	case strings.HasPrefix(err.Error(), "UNKNOWN"):
		report.Unknown++
	default:
		report.Errors = append(report.Errors, err.Error())
	}
	return false
}

func wrong(what string) {
	report.Errors = append(report.Errors, what)
}

func main() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1]})
	prefixes := strings.Split(os.Args[2], ",")
	var stopped atomic.Bool
	go func() {
		_, _ = io.ReadAll(os.Stdin)
		stopped.Store(true)
	}()
	done, last := make([]int64, len(prefixes)), make([]int64, len(prefixes))
	for _, prefix := range prefixes {
		ask(func() error { return client.Set(ctx, prefix+"counter", 0, 0).Err() })
	}
	fmt.Println("ready")
	for number := 1; !stopped.Load(); number++ {
		for i, prefix := range prefixes {
			key, seen := prefix+"key", ""
			isKnown := ask(func() error { return client.Set(ctx, key, number, 0).Err() })
			isSeen := ask(func() (err error) { seen, err = client.Get(ctx, key).Result(); return })
			if isKnown && isSeen && seen != strconv.Itoa(number) {
				wrong(fmt.Sprintf("%s is %s and not %d", key, seen, number))
			}
			var count int64
			if ask(func() (err error) { count, err = client.Incr(ctx, prefix+"counter").Result(); return }) {
				if done[i]++; count <= last[i] {
					wrong(fmt.Sprintf("%scounter goes back: %d", prefix, count))
				}
				last[i] = count
			}
		}
	}
	for i, prefix := range prefixes {
		var counter int64
		ask(func() (err error) { counter, err = client.Get(ctx, prefix+"counter").Int64(); return })
		if counter < done[i] || counter > done[i]+int64(report.Unknown) {
			wrong(fmt.Sprintf("%scounter is %d after %d additions", prefix, counter, done[i]))
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(report)
}
