package podutil

import (
	"time"
)

// forEver is what a number of seconds of a pod's spec stands for at most.
const forEver = 100 * 365 * 24 * time.Hour

// Seconds is so many seconds of a pod's spec, where any number may stand: a
// grace period of all that fits an int64 ("never") does not become none.
func Seconds(n int64) time.Duration {
	if n > int64(forEver/time.Second) {
		return forEver
	}
	return time.Duration(max(n, 0)) * time.Second
}
