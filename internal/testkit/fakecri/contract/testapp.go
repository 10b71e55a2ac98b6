package contract

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// TestApp is a fakecri Script for containers of the test program's image: it follows the
// same arguments as test/images/testapp does.
func TestApp(p fakecri.Process) *fakecri.Script {
	if c := p.Container.GetCommand(); len(c) > 0 && c[0] != "/testapp" {
		return &fakecri.Script{StartErr: notThere(c[0])}
	}
	s := command(p.Container.GetArgs())
	s.Exec = func(call fakecri.ExecCall) fakecri.ExecResult {
		if call.Command[0] != "/testapp" {
			return fakecri.ExecResult{Err: notThere(call.Command[0])}
		}
		args := call.Command[1:]
		if len(args) > 0 && args[0] == "stat" {
			return fakecri.ExecResult{Stdout: "type=file mode=0755\n"}
		}
		run := fakecri.Run{For: 1000 * time.Hour}
		if runs := command(args).Runs; len(runs) > 0 {
			run = runs[0]
		}
		return fakecri.ExecResult{Code: run.Code, After: run.For}
	}
	return &s
}

func notThere(program string) error {
	return errors.New("failed to create containerd task: failed to create shim task: OCI runtime create failed: exec: \"" + program + "\": stat " + program + ": no such file or directory: unknown")
}

func command(args []string) fakecri.Script {
	if len(args) == 0 {
		return fakecri.Exits(0, 2)
	}
	flags := map[string]string{}
	for _, a := range args[1:] {
		name, value, _ := strings.Cut(a, "=")
		flags[name] = value
	}
	switch args[0] {
	case "true":
		return fakecri.Exits(0, 0)
	case "false":
		return fakecri.Exits(0, 1)
	case "exit":
		after, _ := time.ParseDuration(flags["after"])
		code, _ := strconv.Atoi(flags["code"])
		return fakecri.Exits(after, int32(code))
	case "sleep":
		if d, err := time.ParseDuration(flags["for"]); err == nil && d > 0 {
			return fakecri.Exits(d, 0)
		}
	case "stubborn":
		return fakecri.Script{OnTerm: fakecri.Term{Ignore: true}, Log: []fakecri.LogLine{{Text: "ignoring SIGTERM"}}}
	}
	return fakecri.Forever()
}
