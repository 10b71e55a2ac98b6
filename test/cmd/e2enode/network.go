package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// The run's network: one interface, whose other end refuses everything at once,
// so that what looks for the world outside learns without waiting that there is
// none.
const (
	nearAddress = "192.168.77.2"
	farAddress  = "192.168.77.1"
	nearLink    = "eth0"
	farLink     = "far0"
)

func makeNetwork(o order) error {
	if err := ip("link", "set", "lo", "up"); err != nil {
		return err
	}
	if err := linkToFarEnd(o); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"address", "add", nearAddress + "/24", "dev", nearLink},
		{"link", "set", nearLink, "up"},
		{"route", "add", "default", "via", farAddress},
	} {
		if err := ip(args...); err != nil {
			return err
		}
	}
	if err := setKernel("net/ipv4/ip_forward", "1"); err != nil {
		return err
	}
	for path, text := range map[string]string{
		"/etc/resolv.conf": "nameserver " + farAddress + "\n",
		"/etc/hostname":    nodeName + "\n",
		"/etc/hosts":       "127.0.0.1 localhost\n" + nearAddress + " " + nodeName + "\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// linkToFarEnd starts the process that holds the other end's namespace and
// connects the two. It stays until process 1 ends.
func linkToFarEnd(o order) error {
	far := exec.Command(filepath.Join(o.Bin, "e2enode"), roleFar)
	far.Stderr = os.Stderr
	far.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	in, err := far.StdinPipe()
	if err != nil {
		return err
	}
	out, err := far.StdoutPipe()
	if err != nil {
		return err
	}
	if err := far.Start(); err != nil {
		return fmt.Errorf("start the other end of the network: %w", err)
	}
	if err := ip("link", "add", nearLink, "type", "veth", "peer", "name", farLink, "netns", strconv.Itoa(far.Process.Pid)); err != nil {
		return err
	}
	if _, err := io.WriteString(in, "linked\n"); err != nil {
		return fmt.Errorf("tell the other end of the network: %w", err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return fmt.Errorf("the other end of the network did not come up: %w", err)
	}
	return nil
}

// beFarEnd is the other end: it forwards, and knows no way anywhere.
func beFarEnd([]string) error {
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"address", "add", farAddress + "/24", "dev", farLink},
		{"link", "set", farLink, "up"},
		{"route", "add", "unreachable", "default"},
	} {
		if err := ip(args...); err != nil {
			return err
		}
	}
	// Every refusal is sent, not one per second.
	for name, value := range map[string]string{"net/ipv4/ip_forward": "1", "net/ipv4/icmp_ratelimit": "0"} {
		if err := setKernel(name, value); err != nil {
			return err
		}
	}
	fmt.Println("up")
	_, err := io.Copy(io.Discard, os.Stdin) // until the run is over
	return err
}

func setKernel(name, value string) error {
	if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0); err != nil {
		return fmt.Errorf("set %s: %w", name, err)
	}
	return nil
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
