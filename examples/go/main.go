// Quorate with go-redis: go on at another node, write once, hold a lock, take a job.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Quorate is a connection to one of several nodes: to the next one when it breaks.
type Quorate struct {
	nodes  []string
	client *redis.Client
}

func connect(nodes []string) *Quorate {
	quorate := &Quorate{nodes: nodes}
	quorate.connect()
	return quorate
}

func (q *Quorate) connect() {
	if q.client != nil {
		_ = q.client.Close()
	}
	// A node answers within command_timeout_ms (5 s). A client that waits for less makes definite answers unknown.
	// What the client would repeat by itself could be done twice.
	q.client = redis.NewClient(&redis.Options{
		Addr: q.nodes[0], DialTimeout: 2 * time.Second, ReadTimeout: 15 * time.Second,
		MaxRetries: -1, DialerRetries: 1, PoolSize: 1, DisableIdentity: true,
	})
}

// once sends a command. If the connection breaks, its outcome is unknown.
func (q *Quorate) once(words ...any) (any, error) {
	answer, err := q.client.Do(context.Background(), words...).Result()
	var refusal redis.Error
	switch {
	case errors.Is(err, redis.Nil):
		return nil, nil
	case err != nil && !errors.As(err, &refusal):
		q.nodes = append(q.nodes[1:], q.nodes[0])
		q.connect()
	}
	return answer, err
}

// repeat sends a command that may be sent twice, until its outcome is known.
func (q *Quorate) repeat(words ...any) (any, error) {
	return q.untilKnown(func() (any, error) { return q.once(words...) })
}

// untilKnown repeats a step until its outcome is known.
func (q *Quorate) untilKnown(step func() (any, error)) (any, error) {
	for giveUp := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		answer, err := step()
		var refusal redis.Error
		if err == nil || errors.As(err, &refusal) && !isPassing(err) {
			return answer, err
		}
		if time.Now().After(giveUp) {
			return nil, fmt.Errorf("no node has answered: %w", err)
		}
	}
}

// isPassing reports whether to repeat after an error. UNKNOWN: it may have happened. TRYAGAIN and CLUSTERDOWN: it did
// not, and it may soon.
func isPassing(err error) bool {
	code, _, _ := strings.Cut(err.Error(), " ")
	return code == "UNKNOWN" || code == "TRYAGAIN" || code == "CLUSTERDOWN"
}

// take moves a job to the worker's own list. One that is there already was moved by a command of unknown outcome.
func (q *Quorate) take(queue, own string) (any, error) {
	for {
		job, err := q.untilKnown(func() (any, error) {
			if job, err := q.once("LINDEX", own, -1); job != nil || err != nil {
				return job, err
			}
			return q.once("BLMOVE", queue, own, "RIGHT", "LEFT", 10)
		})
		if job != nil || err != nil {
			return job, err
		} // Else there was none for ten seconds.
	}
}

func must(answer any, err error) any {
	if err != nil {
		log.Fatal(err)
	}
	return answer
}

func main() {
	log.SetFlags(0)
	nodes := os.Args[1:]
	if len(nodes) == 0 {
		nodes = []string{"127.0.0.1:7000", "127.0.0.1:7001", "127.0.0.1:7002"}
	}
	for _, node := range nodes {
		if _, _, err := net.SplitHostPort(node); err != nil {
			log.Fatal(err)
		}
	}
	q := connect(nodes)
	me := "worker-" + rand.Text()

	// Write once. Whoever sets the order finds its own value there when it repeats.
	order := "order:" + rand.Text()
	if before := must(q.repeat("SET", order, me, "NX", "GET")); before != nil && before != me {
		log.Fatalf("the order is %v's", before)
	}
	if must(q.repeat("GET", order)) != me {
		log.Fatal("the order is not ours")
	}
	fmt.Println("the order is ours")

	// A lock. To ask again with the same owner gives the same token.
	tag := "{job:" + rand.Text() + "}"
	lock, state := tag+":lock", tag+":state"
	token := must(q.repeat("LOCK", lock, me, "PX", 10000, "WAIT", 60000))
	must(q.repeat("SET", state, "begun", "FENCE", lock, token))
	fmt.Println("written under the lock:", must(q.repeat("GET", state)))
	must(q.repeat("UNLOCK", lock, token))
	newer := must(q.repeat("LOCK", lock, "another", "PX", 10000, "WAIT", 60000))
	_, err := q.repeat("SET", state, "too late", "FENCE", lock, token)
	if err == nil {
		log.Fatal("a write with an old token was not refused")
	}
	code, _, _ := strings.Cut(err.Error(), " ")
	fmt.Println("a late write is refused:", code)
	must(q.repeat("UNLOCK", lock, newer))

	// A queue. A job may be in it twice, since its LPUSH may have been repeated: what it does must bear that.
	queue := "{queue:" + me + "}"
	own := queue + ":own"
	must(q.repeat("LPUSH", queue, "job 1"))
	job := must(q.take(queue, own))
	fmt.Println("taken:", job)
	must(q.repeat("LREM", own, 0, job))
	must(q.repeat("DEL", order, state, queue, own))
	fmt.Println("done")
}
