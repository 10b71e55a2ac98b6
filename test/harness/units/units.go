// Package units stands in for systemd on a machine without it, as far as kubeadm
// asks it: it starts, stops and restarts services by name and says how they are.
// It must never start anything but the units that it was given.
package units

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"time"
)

// Variable names the environment variable with the path of the socket that the
// stand-in of systemctl asks.
const Variable = "POLYLET_TEST_UNITS"

// askWithin bounds one command; a stop waits for a process.
const askWithin = 2 * time.Minute

// Answer is what a command prints, and its exit code.
type Answer struct {
	Output string
	Code   int
}

// Units are the services of one machine.
type Units struct {
	listener net.Listener
	units    map[string]*Unit
}

// Serve answers at a socket until Close.
func Serve(socket string, units map[string]*Unit) (*Units, error) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("serve units: %w", err)
	}
	u := &Units{listener: l, units: units}
	go u.serve()
	return u, nil
}

// Close stops every unit, and answering.
func (u *Units) Close() {
	u.listener.Close()
	for _, unit := range u.units {
		unit.Stop()
	}
}

// Ask sends a command to a machine's units.
func Ask(socket string, args []string) (Answer, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return Answer{}, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(askWithin)); err != nil {
		return Answer{}, err
	}
	if err := json.NewEncoder(conn).Encode(args); err != nil {
		return Answer{}, err
	}
	var answer Answer
	err = json.NewDecoder(conn).Decode(&answer)
	return answer, err
}

func (u *Units) serve() {
	for {
		conn, err := u.listener.Accept()
		if err != nil {
			return // closed
		}
		go func() {
			defer conn.Close()
			var args []string
			if err := json.NewDecoder(conn).Decode(&args); err != nil {
				return // who asked is gone
			}
			_ = json.NewEncoder(conn).Encode(u.do(args)) // the same
		}()
	}
}

// Exit codes of systemctl.
const (
	failed    = 1
	inactive  = 3
	notLoaded = 4
)

func (u *Units) do(args []string) Answer {
	if len(args) == 1 && args[0] == "daemon-reload" {
		return Answer{}
	}
	if len(args) != 2 {
		return Answer{Output: fmt.Sprintf("this stand-in does not know %q\n", args), Code: failed}
	}
	name := strings.TrimSuffix(args[1], ".service")
	unit := u.units[name]
	if unit == nil {
		return unknown(args[0], name)
	}
	switch args[0] {
	case "start":
		unit.Start()
	case "stop":
		unit.Stop()
	case "restart":
		unit.Stop()
		unit.Start()
	case "is-enabled":
		return Answer{Output: "enabled\n"}
	case "is-active", "status":
		state := Answer{Output: "active\n"}
		if !unit.Wanted() {
			state = Answer{Output: "inactive\n", Code: inactive}
		}
		if args[0] == "status" {
			state.Output = fmt.Sprintf("● %s.service\n     Loaded: loaded\n     Active: %s", name, state.Output)
		}
		return state
	default:
		return Answer{Output: fmt.Sprintf("this stand-in does not know %q\n", args), Code: failed}
	}
	return Answer{}
}

func unknown(verb, name string) Answer {
	if verb == "is-active" {
		return Answer{Output: "inactive\n", Code: inactive}
	}
	return Answer{Output: fmt.Sprintf("Unit %s.service could not be found.\n", name), Code: notLoaded}
}
