// Command systemctl stands in for systemd's where there is none: it hands its
// arguments to the harness that keeps the machine's units (harness/units), prints
// what that answers, and ends with its exit code. It must never
// decide anything.
package main

import (
	"fmt"
	"os"

	"github.com/polylet/polylet/test/harness/units"
)

func main() {
	answer, err := units.Ask(os.Getenv(units.Variable), os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "systemctl:", err)
		os.Exit(1)
	}
	fmt.Print(answer.Output)
	os.Exit(answer.Code)
}
