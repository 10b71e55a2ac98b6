// Package raced says whether a test was built with the race detector, with which what only
// computes costs several times as much.
//
// It owns that word. It must never make a test leave out what no other run has.
package raced

// Share is n, or with the race detector the tenth of it: for cases of code that starts no
// goroutine, all of which another run has.
func Share(n int) int {
	if Enabled {
		return max(1, n/10)
	}
	return n
}
