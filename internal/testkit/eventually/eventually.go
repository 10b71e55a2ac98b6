// Package eventually waits in tests for what real sockets, processes and the kernel bring
// about, of which nothing tells. It owns for how long: what is right costs a moment, and a
// busy machine stands still for seconds. It must never be used where time is simulated, nor
// where something can be waited for.
package eventually

import (
	"errors"
	"testing"
	"time"
)

const (
	patience = 30 * time.Second
	pause    = 5 * time.Millisecond
)

// True asks until it is so; a test in which it does not come to that ends with what is
// the matter otherwise.
func True(t testing.TB, otherwise string, is func() bool) {
	t.Helper()
	Nil(t, func() error {
		if is() {
			return nil
		}
		return errors.New(otherwise)
	})
}

// Nil tries until there is no error; a test in which there always is one ends with the last.
func Nil(t testing.TB, try func() error) {
	t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(pause) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%v, after %v", err, patience)
		}
	}
}
