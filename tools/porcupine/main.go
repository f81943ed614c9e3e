// Asks Porcupine, a checker that shares nothing with Quorate's, about histories that `quorate-lab export --to porcupine` wrote.
//
//	go run . [-timeout 60s] FILE...
//
// It prints a line for each file. Exit code: 0 all are linearizable; 1 one is not; 2 wrong usage, or a file that cannot be
// read; 3 one was not decided in time, and none is known to be wrong.
package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

// Bytes are a string, or {"base64": "..."} where they are not UTF-8.
type Bytes string

func (b *Bytes) UnmarshalJSON(text []byte) error {
	var plain string
	if json.Unmarshal(text, &plain) == nil {
		*b = Bytes(plain)
		return nil
	}
	var coded struct {
		Base64 *string `json:"base64"`
	}
	if err := json.Unmarshal(text, &coded); err != nil {
		return err
	}
	if coded.Base64 == nil {
		return fmt.Errorf("bytes are a string or {\"base64\": \"...\"}")
	}
	decoded, err := base64.StdEncoding.DecodeString(*coded.Base64)
	*b = Bytes(decoded)
	return err
}

// Input is what was asked, and when: leases need the time.
type Input struct {
	Operation string `json:"operation"`
	Key       *Bytes `json:"key"`
	Lock      *Bytes `json:"lock"`
	Expected  *Bytes `json:"expected"`
	Value     Bytes  `json:"value"`
	Delta     int64  `json:"delta"`
	Owner     Bytes  `json:"owner"`
	Token     uint64 `json:"token"`
	LeaseMs   int64  `json:"lease_ms"`
	call      int64
	returned  int64
}

// Output is what was told. A null is a nil.
type Output struct {
	Value   *Bytes  `json:"value"`
	Applied *bool   `json:"applied"`
	Sum     *int64  `json:"sum"`
	Token   *uint64 `json:"token"`
}

type line struct {
	Client int64   `json:"client"`
	Input  *Input  `json:"input"`
	Call   *int64  `json:"call"`
	Output *Output `json:"output"`
	Return *int64  `json:"return"`
}

func read(path string) (keys, locks []porcupine.Operation, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(make([]byte, 1<<16), 64<<20)
	for number := 1; lines.Scan(); number++ {
		var read line
		if err := json.Unmarshal(lines.Bytes(), &read); err != nil {
			return nil, nil, fmt.Errorf("%s, line %d: %w", path, number, err)
		}
		if read.Input == nil || read.Call == nil || (read.Output == nil) != (read.Return == nil) {
			return nil, nil, fmt.Errorf("%s, line %d: it is no operation", path, number)
		}
		operation := porcupine.Operation{
			ClientId: int(read.Client), Call: *read.Call, Output: read.Output, Return: math.MaxInt64,
		}
		if read.Return != nil {
			operation.Return = *read.Return
		}
		read.Input.call, read.Input.returned = operation.Call, operation.Return
		operation.Input = read.Input
		switch {
		case read.Input.Lock != nil && lockOperations[read.Input.Operation]:
			locks = append(locks, operation)
		case read.Input.Key != nil && keyOperations[read.Input.Operation]:
			keys = append(keys, operation)
		default:
			return nil, nil, fmt.Errorf("%s, line %d: there is no operation %q", path, number, read.Input.Operation)
		}
	}
	return keys, locks, lines.Err()
}

func main() {
	timeout := flag.Duration("timeout", time.Minute, "give up on a history after so long")
	flag.Parse()
	if flag.NArg() == 0 || *timeout <= 0 {
		flag.Usage()
		os.Exit(2)
	}
	isIllegal, isUnknown := false, false
	for _, path := range flag.Args() {
		keys, locks, err := read(path)
		if err == nil && len(keys)+len(locks) == 0 {
			err = fmt.Errorf("%s: it holds no operation, so there is nothing to check", path)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "porcupine:", err)
			os.Exit(2)
		}
		begun := time.Now()
		ofKeys := porcupine.CheckOperationsTimeout(keyModel, keys, *timeout)
		ofLocks := porcupine.CheckOperationsTimeout(lockModel.ToModel(), locks, *timeout)
		word := "ok"
		switch {
		case ofKeys == porcupine.Illegal || ofLocks == porcupine.Illegal:
			word, isIllegal = "illegal", true
		case ofKeys == porcupine.Unknown || ofLocks == porcupine.Unknown:
			word, isUnknown = "unknown", true
		}
		fmt.Printf("%s: %s: %d operations of keys, %d of locks (%.2f s)\n",
			path, word, len(keys), len(locks), time.Since(begun).Seconds())
	}
	switch {
	case isIllegal:
		os.Exit(1)
	case isUnknown:
		os.Exit(3)
	}
}
