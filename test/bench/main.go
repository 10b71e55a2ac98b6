// Command bench measures a node: how fast it starts and ends pods, what its API
// gives, what it notices and costs, and how it does with hundreds of pods. It
// must never measure doubles of what a user has, but where a column says so; figures of
// different runs are not to be compared, the columns of one run are.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/polylet/polylet/test/bench/internal/api"
	"github.com/polylet/polylet/test/bench/internal/pods"
	"github.com/polylet/polylet/test/bench/internal/rows"
	"github.com/polylet/polylet/test/bench/internal/scale"
	"github.com/polylet/polylet/test/bench/internal/volumes"
)

const usage = `usage: bench COMMAND [flags]
  pods    how long pods take to be Ready and to be gone, and the same for the runtime alone
  api     the node's API with a burst of pods: documents, exec, logs, port-forward
  rows    how soon probes, kills and changed files are noticed, and what an idle node costs
  volumes how long pods with volumes take to be Ready, to be gone, and their volumes to be unmounted
  scale   hundreds of pods on a fake runtime
bench COMMAND -h lists the flags of a command.
`

// command adds its flags and returns what measures once they are parsed.
type command func(*flag.FlagSet) func(context.Context) error

func commands() map[string]command {
	return map[string]command{"pods": pods.Command, "api": api.Command, "rows": rows.Command, "volumes": volumes.Command, "scale": scale.Command}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	measure, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = measure(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// parse finds the command and reads its flags.
func parse(args []string) (func(context.Context) error, error) {
	name, rest := named(args)
	make, ok := commands()[name]
	if !ok {
		fmt.Fprint(os.Stderr, usage)
		return nil, fmt.Errorf("no command %q; use pods, api, rows, volumes or scale", name)
	}
	fs := flag.NewFlagSet("bench "+name, flag.ContinueOnError)
	measure := make(fs)
	if err := fs.Parse(rest); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("bench %s takes flags only, not %q", name, fs.Arg(0))
	}
	return measure, nil
}

// named is the command that the arguments ask for, and its flags. Commands were
// flags once, and the results in docs/ name them so: -api, -rows and -scale N
// are still understood, and without any of them the command is pods.
func named(args []string) (name string, flags []string) {
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		return args[0], args[1:]
	}
	name = "pods"
	for i := 0; i < len(args); i++ {
		switch flag, value, _ := strings.Cut(strings.TrimLeft(args[i], "-"), "="); {
		case flag == "api" || flag == "rows":
			name = flag
		case flag == "scale" && value != "":
			name, flags = flag, append(flags, "-pods="+value)
		case flag == "scale" && i+1 < len(args):
			i++
			name, flags = flag, append(flags, "-pods="+args[i])
		default:
			flags = append(flags, args[i])
		}
	}
	return name, flags
}
