package vm

import (
	"fmt"
	"time"
)

// readTSC reads the processor's time-stamp counter, which an emulated machine
// sees as it is.
func readTSC() uint64

// clock are kernel arguments that make the time-stamp counter the machine's
// clock: any other is emulated too, and a Go program asks for the time all the
// while. The kernel's own measurement of the counter is wrong when the emulation
// is interrupted; so it is told.
func clock() string {
	const window = 200 * time.Millisecond
	began, first := time.Now(), readTSC()
	time.Sleep(window) // what is measured
	last, took := readTSC(), time.Since(began)
	return fmt.Sprintf(" tsc=reliable clocksource=tsc tsc_early_khz=%.0f", float64(last-first)/took.Seconds()/1000)
}
