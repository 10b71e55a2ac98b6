package kernellog

import (
	"bytes"
	"strconv"
	"time"
)

// Record is one of the kernel's log.
type Record struct {
	// Sequence grows by one with each record since the machine started.
	Sequence uint64
	// SinceBoot is when it was written, by the kernel's own clock.
	SinceBoot time.Duration
	// Kernel is whether the kernel wrote it; anybody with root may write others.
	Kernel bool
	// Text is its first line. What is not printable is escaped in it.
	Text string
}

// facilityShift is where the facility begins in a record's priority; the kernel's is 0.
const facilityShift = 3

// ParseRecord reads a record as /dev/kmsg gives it:
// "priority,sequence,microseconds,flags[,…];text\n KEY=value…". False: it is none.
// Source: the kernel's Documentation/ABI/testing/dev-kmsg.
func ParseRecord(data []byte) (Record, bool) {
	head, text, found := bytes.Cut(data, []byte{';'})
	if !found {
		return Record{}, false
	}
	var numbers [3]uint64
	for i := range numbers {
		var field []byte
		field, head, _ = bytes.Cut(head, []byte{','})
		var err error
		if numbers[i], err = strconv.ParseUint(string(field), 10, 63); err != nil {
			return Record{}, false
		}
	}
	line, _, _ := bytes.Cut(text, []byte{'\n'})
	return Record{
		Sequence: numbers[1], SinceBoot: time.Duration(min(numbers[2], longestBoot)) * time.Microsecond,
		Kernel: numbers[0]>>facilityShift == 0, Text: string(line),
	}, true
}

// longestBoot are the microseconds that a time.Duration has room for.
const longestBoot = uint64(1<<63-1) / 1000
