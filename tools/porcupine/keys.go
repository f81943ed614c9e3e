package main

import (
	"strconv"

	"github.com/anishathalye/porcupine"
)

var keyOperations = map[string]bool{
	"get": true, "set": true, "delete": true, "increment": true, "set-if-absent": true, "get-and-set": true,
	"compare-and-set": true,
}

// register is what one key holds.
type register struct {
	exists bool
	value  Bytes
}

func (r register) is(value *Bytes) bool {
	if value == nil {
		return !r.exists
	}
	return r.exists && r.value == *value
}

// sum is what an increment makes of it, if it holds an integer as Redis writes one.
func (r register) sum(delta int64) (int64, bool) {
	var before int64
	if r.exists {
		parsed, err := strconv.ParseInt(string(r.value), 10, 64)
		if err != nil || strconv.FormatInt(parsed, 10) != string(r.value) {
			return 0, false
		}
		before = parsed
	}
	sum := before + delta
	return sum, (sum > before) == (delta > 0) || delta == 0
}

// keyModel is a key-value store; each key is a register of its own.
var keyModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		return partition(history, func(input *Input) Bytes { return *input.Key })
	},
	Init:  func() any { return register{} },
	Equal: func(one, other any) bool { return one == other },
	Step: func(state, input, output any) (bool, any) {
		return stepKey(state.(register), input.(*Input), output.(*Output))
	},
}

// stepKey is the whole specification. Without an output, it may have been anything.
func stepKey(state register, input *Input, output *Output) (bool, register) {
	stored := register{exists: true, value: input.Value}
	conditional := func(holds bool) (bool, register) {
		isTold := output == nil || output.Applied != nil && *output.Applied == holds
		if holds {
			return isTold, stored
		}
		return isTold, state
	}
	switch input.Operation {
	case "get":
		return output == nil || state.is(output.Value), state
	case "set":
		return true, stored
	case "delete":
		// The count of removed keys is not always part of the promise.
		return output == nil || output.Applied == nil || *output.Applied == state.exists, register{}
	case "increment":
		sum, isInteger := state.sum(input.Delta)
		if !isInteger {
			return output == nil, state
		}
		isTold := output == nil || output.Sum != nil && *output.Sum == sum
		return isTold, register{exists: true, value: Bytes(strconv.FormatInt(sum, 10))}
	case "set-if-absent":
		return conditional(!state.exists)
	case "get-and-set":
		return output == nil || state.is(output.Value), stored
	case "compare-and-set":
		return conditional(state.is(input.Expected))
	}
	return false, state
}

func partition(history []porcupine.Operation, name func(*Input) Bytes) [][]porcupine.Operation {
	places := map[Bytes]int{}
	var parts [][]porcupine.Operation
	for _, operation := range history {
		of := name(operation.Input.(*Input))
		place, isThere := places[of]
		if !isThere {
			place = len(parts)
			places[of] = place
			parts = append(parts, nil)
		}
		parts[place] = append(parts[place], operation)
	}
	return parts
}
