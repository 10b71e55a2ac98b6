package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
	"github.com/polylet/polylet/internal/service"
)

func newStatusCommand() *cobra.Command {
	cmd := inspectCommand("status", "Show the five services: up or down, what they lack, memory", cobra.NoArgs,
		func(cmd *cobra.Command, dir string, _ []string) error {
			if done, err := structured(cmd, statusDocument(askAll(cmd.Context(), dir))); done {
				return err
			}
			return showStatus(cmd.OutOrStdout(), askAll(cmd.Context(), dir), time.Now())
		})
	outputFlag(cmd)
	return cmd
}

// statusDocument is what the services said of themselves, or why they did not.
func statusDocument(states []serviceState) func() ([]byte, error) {
	return func() ([]byte, error) {
		type document struct {
			Service  string          `json:"service"`
			Up       bool            `json:"up"`
			NoAccess bool            `json:"noAccess,omitempty"` // whether it is up is not known
			Error    string          `json:"error,omitempty"`
			PSSBytes uint64          `json:"pssBytes,omitempty"`
			Info     json.RawMessage `json:"info,omitempty"`
		}
		var out []document
		for _, s := range states {
			d := document{Service: s.name, Up: s.err == nil, PSSBytes: s.pssBytes}
			if s.err != nil {
				no := (*noAccess)(nil)
				d.NoAccess, d.Error = errors.As(s.err, &no), s.err.Error()
			} else {
				raw, err := protojson.Marshal(s.info)
				if err != nil {
					return nil, fmt.Errorf("encode what %s says: %w", s.name, err)
				}
				d.Info = raw
			}
			out = append(out, d)
		}
		return json.Marshal(map[string]any{"services": out})
	}
}

// serviceState is what one service said.
type serviceState struct {
	name string
	info *commonv1.GetInfoResponse
	err  error
	// pssBytes is the process's share of memory; 0 when it may not be read.
	pssBytes uint64
}

// askAll asks all services at once.
func askAll(ctx context.Context, dir string) []serviceState {
	states := make([]serviceState, len(service.All()))
	var wg sync.WaitGroup
	for i, name := range service.All() {
		wg.Go(func() { states[i] = askOne(ctx, dir, name) })
	}
	wg.Wait()
	return states
}

func askOne(ctx context.Context, dir, name string) serviceState {
	state := serviceState{name: name}
	conn, err := dial(dir, name)
	if err != nil {
		state.err = err
		return state
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	state.info, err = commonv1.NewCommonServiceClient(conn).GetInfo(ctx, &commonv1.GetInfoRequest{})
	if err != nil {
		state.err = explainCall(name, err)
		return state
	}
	state.pssBytes, _ = pss(state.info.GetPid()) // another user's process cannot be read
	return state
}

// showStatus prints the table, and below it why something is not ready. A
// service that is down makes the command fail.
func showStatus(out io.Writer, states []serviceState, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "SERVICE\tSTATE\tPID\tVERSION\tUP\tMEMORY\tWAITS FOR")
	var total uint64
	var reasons, down, closed []string
	for _, s := range states {
		if no := (*noAccess)(nil); errors.As(s.err, &no) {
			closed = append(closed, s.name)
			reasons = append(reasons, fmt.Sprintf("%s: %s", s.name, oneLine(no.Error())))
			fmt.Fprintf(w, "%s\tno access\t-\t-\t-\t-\t-\n", s.name)
			continue
		}
		if s.err != nil {
			down = append(down, s.name)
			reasons = append(reasons, fmt.Sprintf("%s: %s", s.name, oneLine(s.err.Error())))
			fmt.Fprintf(w, "%s\tdown\t-\t-\t-\t-\t-\n", s.name)
			continue
		}
		var missing []string
		for _, d := range s.info.GetDependencies() {
			if !d.GetReady() {
				missing = append(missing, d.GetName())
				reasons = append(reasons, fmt.Sprintf("%s waits for %s since %s: %s", s.name, d.GetName(),
					age(d.GetSince().AsTime(), now), oneLine(d.GetMessage())))
			}
		}
		for _, d := range s.info.GetDependencies() {
			if d.GetReady() && d.GetMessage() != "" {
				reasons = append(reasons, fmt.Sprintf("%s: %s: %s", s.name, d.GetName(), oneLine(d.GetMessage())))
			}
		}
		total += s.pssBytes
		fmt.Fprintf(w, "%s\tup\t%d\t%s\t%s\t%s\t%s\n", s.name, s.info.GetPid(), s.info.GetBuild().GetVersion(),
			age(s.info.GetStartTime().AsTime(), now), mebibytes(s.pssBytes), orDash(strings.Join(missing, ",")))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if total > 0 {
		fmt.Fprintf(out, "\nmemory of all (PSS): %s\n", mebibytes(total))
	}
	for _, reason := range reasons {
		fmt.Fprintln(out, reason)
	}
	var failed []string
	if len(down) > 0 {
		failed = append(failed, "not running: "+strings.Join(down, ", "))
	}
	if len(closed) > 0 {
		failed = append(failed, "may not be asked by this user: "+strings.Join(closed, ", "))
	}
	if len(failed) > 0 {
		return errors.New(strings.Join(failed, "; "))
	}
	return nil
}

func mebibytes(bytes uint64) string {
	if bytes == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
}

// pss reads a process's proportional set size.
func pss(pid int32) (uint64, error) {
	f, err := os.Open("/proc/" + strconv.Itoa(int(pid)) + "/smaps_rollup")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return parsePSS(f)
}

func parsePSS(r io.Reader) (uint64, error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && fields[0] == "Pss:" && fields[2] == "kB" {
			kib, err := strconv.ParseUint(fields[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no Pss line: %w", io.ErrUnexpectedEOF)
}
