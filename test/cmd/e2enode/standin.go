package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// standIns are the programs that the suite expects of a machine with systemd,
// and the kubelet, by the name under which this program is called. They do the
// same for both agents.
var standIns = map[string]func(args []string) int{
	"sudo": sudo, "systemd-run": systemdRun, "systemctl": systemctl, "journalctl": journalctl, "kubelet": kubelet,
}

// agentVariable names polylet for the stand-in of the kubelet.
const agentVariable = "E2ENODE_POLYLET"

// kubelet answers as the kubelet would: `polylet run` takes its arguments. The
// suite finds the agent's process by the name kubelet.
func kubelet(args []string) int {
	program := os.Getenv(agentVariable)
	return report(become(program, append([]string{"kubelet", "run"}, args...), os.Environ()))
}

// sudo runs the rest of the line: the suite is root.
func sudo(args []string) int {
	if len(args) == 0 {
		return report(fmt.Errorf("sudo: no program named"))
	}
	program, err := exec.LookPath(args[0])
	if err != nil {
		return report(err)
	}
	return report(become(program, args, os.Environ()))
}

// journalctl has no journal: each program of the run has a log file.
func journalctl([]string) int { return 0 }

func systemdRun(args []string) int {
	if len(args) == 1 && args[0] == "--version" {
		fmt.Println("systemd 252 (a stand-in without systemd)")
		return 0
	}
	request, err := parseRun(args)
	if err != nil {
		return report(err)
	}
	return ask(request)
}

// parseRun reads what the suite starts its kubelet with.
func parseRun(args []string) (unitRequest, error) {
	r := unitRequest{Verb: verbStart}
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		option := args[0]
		args = args[1:]
		switch name, value, _ := strings.Cut(option, "="); {
		case name == "-p" && len(args) > 0:
			if log, ok := strings.CutPrefix(args[0], "StandardError=append:"); ok {
				r.Log = log
			}
			args = args[1:]
		case name == "--unit":
			r.Unit = unitName(value)
		case name == "--slice":
			r.Slice = value
		case name == "--remain-after-exit":
		default:
			return r, fmt.Errorf("systemd-run: this stand-in does not know %s", option)
		}
	}
	if r.Unit == "" || len(args) == 0 {
		return r, fmt.Errorf("systemd-run: want --unit and a program")
	}
	for _, arg := range args {
		r.Command = append(r.Command, unescapeUnit.Replace(arg))
	}
	return r, nil
}

// unescapeUnit takes back what the suite doubles for systemd.
var unescapeUnit = strings.NewReplacer("%%", "%", "$$", "$")

func unitName(name string) string { return strings.TrimSuffix(name, ".service") }

func systemctl(args []string) int {
	r := unitRequest{}
	for _, arg := range args {
		switch {
		case arg == "--state=running":
			r.Running = true
		case strings.HasPrefix(arg, "-"):
			return report(fmt.Errorf("systemctl: this stand-in does not know %s", arg))
		case r.Verb == "":
			r.Verb = arg
		default:
			r.Unit = unitName(arg)
		}
	}
	return ask(r)
}

// ask has the inside of the run do what is requested, and prints its answer.
func ask(r unitRequest) int {
	var err error
	if r.Dir, err = os.Getwd(); err != nil {
		return report(err)
	}
	conn, err := net.Dial("unix", unitSocket)
	if err != nil {
		return report(fmt.Errorf("reach the run's units: %w", err))
	}
	defer conn.Close()
	if err := json.NewEncoder(conn).Encode(r); err != nil {
		return report(fmt.Errorf("ask for %s of %s: %w", r.Verb, r.Unit, err))
	}
	var a unitAnswer
	if err := json.NewDecoder(conn).Decode(&a); err != nil {
		return report(fmt.Errorf("hear about %s of %s: %w", r.Verb, r.Unit, err))
	}
	fmt.Print(a.Output)
	if a.Error != "" {
		fmt.Fprintln(os.Stderr, a.Error)
		return 1
	}
	return 0
}

func report(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// linkStandIns puts this program under its names into the directory; the
// kubelet's is left out when the agent is the kubelet itself.
func linkStandIns(o order) error {
	for name := range standIns {
		target := "e2enode"
		if name == "kubelet" && o.Agent == agentKubelet {
			target = o.Program
		}
		if err := os.Symlink(target, filepath.Join(o.Bin, name)); err != nil {
			return err
		}
	}
	return nil
}

// matches tells whether a unit's name is what `systemctl list-units` asks for.
func matches(pattern, unit string) bool {
	ok, err := path.Match(pattern, unit)
	return err == nil && ok
}

// groupOf is the process group that a unit's processes are signalled by.
func groupOf(pid int, sig syscall.Signal) error { return syscall.Kill(-pid, sig) }
