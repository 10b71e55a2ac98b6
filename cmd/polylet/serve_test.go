package main

import (
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// began is what `polylet serve` made of its process.
type began struct {
	programs  []string
	argv, env []string
}

func (b *began) serve(t *testing.T, refusal error, args ...string) error {
	t.Helper()
	cmd := newServeCommand(func(program string, argv, env []string) error {
		b.programs, b.argv, b.env = append(b.programs, program), argv, env
		return refusal
	})
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	return cmd.Execute()
}

// Processes of a node are found by their command line, and a service that is begun
// without flags is none of a person's questions.
func TestAServiceThatIsServedIsFoundByItsName(t *testing.T) {
	for _, service := range []string{"podsync", "probes", "stats", "nodestatus", "gateway"} {
		var b began
		_ = b.serve(t, errors.New("not here"), service, "--config=/c", "-v", "2", "--help")
		if want := []string{os.Args[0], service, "--config=/c", "-v", "2", "--help"}; !slices.Equal(b.argv, want) {
			t.Errorf("%s became %q, want %q", service, b.argv, want)
		}
		env := func(name string) string {
			for _, e := range b.env {
				if value, ok := strings.CutPrefix(e, name+"="); ok {
					return value
				}
			}
			return ""
		}
		if asksAboutProbes(nil, env) {
			t.Errorf("%s without flags is taken for a question", service)
		}
	}
}

func TestAProgramThatCannotBeReachedByItsPathIsStillServed(t *testing.T) {
	var b began
	err := b.serve(t, syscall.ENOENT, "stats")
	if len(b.programs) != 2 || b.programs[1] != "/proc/self/exe" {
		t.Errorf("tried %q", b.programs)
	}
	if err == nil || !strings.Contains(err.Error(), "serve stats: execute") {
		t.Errorf("it fails with %v", err)
	}
}

func TestAServiceThatThereIsNotIsNamed(t *testing.T) {
	var b began
	if err := b.serve(t, nil, "kubelet"); err == nil || !strings.Contains(err.Error(), "kubelet") || b.argv != nil {
		t.Errorf("%v, became %q", err, b.argv)
	}
}
