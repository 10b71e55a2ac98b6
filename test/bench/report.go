package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/polylet/polylet/test/harness/workspace"
)

// results holds every figure of every column, rows and columns in the order in
// which they first appeared.
type results struct {
	columns []*column
	rows    []string
}

// column is one agent, or the runtime alone.
type column struct {
	name   string
	values map[string][]float64
	shapes map[string]map[string]bool // by document
	all    *results
}

func newResults() *results { return &results{} }

func (r *results) column(name string) *column {
	for _, c := range r.columns {
		if c.name == name {
			return c
		}
	}
	c := &column{name: name, values: map[string][]float64{}, all: r}
	r.columns = append(r.columns, c)
	return c
}

func (c *column) add(row string, value float64) {
	if !slices.Contains(c.all.rows, row) {
		c.all.rows = append(c.all.rows, row)
	}
	c.values[row] = append(c.values[row], value)
}

// addPods adds each pod's own time, and for several pods when half and all of
// them were done, counted from the first request.
func (c *column) addPods(row string, starts map[string]time.Time, began time.Time, ends map[string]moments, at func(moments) time.Time) {
	var whole []float64
	for name, m := range ends {
		c.add(row+", ms", ms(at(m).Sub(starts[name])))
		whole = append(whole, ms(at(m).Sub(began)))
	}
	if len(whole) == 1 {
		return
	}
	slices.Sort(whole)
	c.add(row+", half of them, ms", whole[(len(whole)-1)/2])
	c.add(row+", all of them, ms", whole[len(whole)-1])
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// quantile is the value below which the share q of the sorted values lies.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	n := int(q*float64(len(sorted))+0.9999) - 1
	return sorted[min(max(n, 0), len(sorted)-1)]
}

// report is the table in Markdown.
func report(s settings, r *results, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Pods per agent and for the runtime alone, %s\n\n", now.UTC().Format("2006-01-02 15:04 UTC"))
	fmt.Fprintf(&b, "Commit %s. %s. %d rounds of %d single pods and a burst of %d; containerd 2.4.2, kube-apiserver 1.36.3 and etcd 3.6.8 on the same machine, image present.\n",
		commit(), machine(), s.rounds, s.samples, s.burst)
	fmt.Fprintf(&b, "In a burst the runtime alone gets %d pods at a time. Columns are p50 / p90 / max.\n\n", s.parallel)
	b.WriteString("| what |")
	for _, c := range r.columns {
		fmt.Fprintf(&b, " %s |", c.name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(r.columns)) + "\n")
	for _, row := range r.rows {
		fmt.Fprintf(&b, "| %s |", row)
		for _, c := range r.columns {
			values := slices.Sorted(slices.Values(c.values[row]))
			if len(values) == 0 {
				b.WriteString(" – |")
				continue
			}
			last := values[len(values)-1]
			fmt.Fprintf(&b, " %s / %s / %s |", figure(quantile(values, 0.5)), figure(quantile(values, 0.9)), figure(last))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// figure has as many digits as mean something.
func figure(v float64) string {
	if v < 20 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

func store(s settings, text string, now time.Time) error {
	path := s.out
	if path == "" {
		kind := "bench"
		switch {
		case s.api:
			kind = "api"
		case s.rows:
			kind = "rows"
		}
		var err error
		if path, err = resultFile(kind, now); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	fmt.Fprintln(os.Stderr, "written to", path)
	return nil
}

// resultFile is where a report of this kind goes unless the command line says it.
func resultFile(kind string, now time.Time) (string, error) {
	root, err := workspace.Root()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, "docs", "results", kind+"-"+now.UTC().Format("2006-01-02")+".md"), nil
}

func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func machine() string {
	var u syscall.Utsname
	kernel := "unknown"
	if err := syscall.Uname(&u); err == nil {
		var b strings.Builder
		for _, c := range u.Release {
			if c == 0 {
				break
			}
			b.WriteByte(byte(c))
		}
		kernel = b.String()
	}
	load, _ := os.ReadFile("/proc/loadavg")
	return fmt.Sprintf("%d cores (%s), %s MiB, Linux %s, load at the end %s", runtime.NumCPU(), cpuModel(), memory(), kernel, strings.TrimSpace(string(load)))
}

func cpuModel() string {
	data, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func memory() string {
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err != nil {
		return "unknown"
	}
	return fmt.Sprint(info.Totalram * uint64(info.Unit) >> 20)
}
