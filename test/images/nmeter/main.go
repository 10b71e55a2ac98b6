// Command nmeter stands in, in the suite's images, for the busybox applet that
// Debian's busybox lacks. The suite's containers ask it for one thing: the time
// of day in milliseconds, as `nmeter -d0 %3t | head -n1`. It must never be
// taken for more: anything else is an error.
package main

import (
	"fmt"
	"os"
	"slices"
	"time"
)

func main() {
	if !slices.Equal(os.Args[1:], []string{"-d0", "%3t"}) {
		fmt.Fprintf(os.Stderr, "nmeter: this stand-in knows only -d0 %%3t, not %q\n", os.Args[1:])
		os.Exit(2)
	}
	fmt.Println(time.Now().UTC().Format("15:04:05.000"))
}
