package main

import "github.com/anishathalye/porcupine"

var lockOperations = map[string]bool{"acquire": true, "renew": true, "release": true}

// lock is what is known of one lock after some operations, which took effect as early as they could.
type lock struct {
	// When the last of them took effect: no later one did before.
	now int64
	// The largest token that is known to have been granted.
	highest uint64
	held    bool
	owner   Bytes
	// Zero is a token that nobody was told.
	token uint64
	// The lease is over then, and not before; how much later is not said.
	over int64
}

// lockModel is a lock service: a lock is held by one owner at a time, from its grant, with a larger token than all before,
// until it is released or its lease is over. What is not known to have happened has several possible states.
var lockModel = porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		return partition(history, func(input *Input) Bytes { return *input.Lock })
	},
	Init:  func() []any { return []any{lock{}} },
	Equal: func(one, other any) bool { return one == other },
	Step: func(state, input, output any) []any {
		asked := input.(*Input)
		before := state.(lock)
		before.now = max(before.now, asked.call)
		var states []any
		for _, after := range stepLock(before, asked, output.(*Output)) {
			if after.now <= asked.returned {
				states = append(states, after)
			}
		}
		return states
	},
}

// lapsed is the lock after its lease: it ends by itself only as long as it is held.
func (l lock) lapsed() lock {
	if l.held {
		return lock{now: max(l.now, l.over), highest: l.highest}
	}
	return l
}

func (l lock) free() lock {
	return lock{now: l.now, highest: l.highest}
}

// with is the lock as one that is held with this token, if it can be.
func (l lock) with(token uint64) (lock, bool) {
	if l.held && l.token == 0 && token > l.highest {
		l.token, l.highest = token, token
	}
	return l, l.held && l.token == token
}

func stepLock(state lock, input *Input, output *Output) []lock {
	lease := func(l lock) lock {
		l.over = l.now + input.LeaseMs*1_000_000
		return l
	}
	isMine := state.held && state.owner == input.Owner
	switch input.Operation {
	case "acquire":
		granted := func(token uint64) lock {
			l := state.lapsed()
			l.held, l.owner, l.token, l.highest = true, input.Owner, token, max(l.highest, token)
			return lease(l)
		}
		switch {
		case output == nil:
			states := []lock{state, granted(0)}
			if isMine {
				states = append(states, lease(state))
			}
			return states
		case output.Token == nil:
			if state.held && !isMine {
				return []lock{state}
			}
			return nil
		}
		var states []lock
		if same, is := state.with(*output.Token); is && isMine {
			states = append(states, lease(same))
		}
		if *output.Token > state.highest {
			states = append(states, granted(*output.Token))
		}
		return states
	case "renew", "release":
		var states []lock
		held, is := state.with(input.Token)
		// Carried out exactly if the lock is held with that token.
		if is && (output == nil || output.Applied != nil && *output.Applied) {
			if input.Operation == "renew" {
				states = append(states, lease(held))
			} else {
				states = append(states, held.free())
			}
		}
		if output == nil {
			states = append(states, state)
		} else if output.Applied != nil && !*output.Applied {
			if state.held && state.token == input.Token {
				states = append(states, state.lapsed())
			} else {
				states = append(states, state)
			}
		}
		return states
	}
	return nil
}
