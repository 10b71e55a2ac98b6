// Package report keeps figures, by who they are of and what they say, and says on
// what machine they were taken. It must never know how a table looks: that is its
// owner's.
package report

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/polylet/polylet/test/harness/workspace"
)

// Results holds every figure of every column, rows and columns in the order in
// which they first appeared.
type Results struct {
	Columns []*Column
	Rows    []string
}

// Column is one agent, or the runtime alone.
type Column struct {
	Name   string
	Values map[string][]float64
	Shapes map[string]map[string]bool // by document
	all    *Results
}

// New returns Results without a figure.
func New() *Results { return &Results{} }

// Column is that of the name, made when it is not there.
func (r *Results) Column(name string) *Column {
	for _, c := range r.Columns {
		if c.Name == name {
			return c
		}
	}
	c := &Column{Name: name, Values: map[string][]float64{}, all: r}
	r.Columns = append(r.Columns, c)
	return c
}

// Add adds a figure to a row, which is made when it is not there.
func (c *Column) Add(row string, value float64) {
	if !slices.Contains(c.all.Rows, row) {
		c.all.Rows = append(c.all.Rows, row)
	}
	c.Values[row] = append(c.Values[row], value)
}

// AddShape keeps what a document has; what it had in any round counts.
func (c *Column) AddShape(document string, shape map[string]bool) {
	if c.Shapes == nil {
		c.Shapes = map[string]map[string]bool{}
	}
	if c.Shapes[document] == nil {
		c.Shapes[document] = map[string]bool{}
	}
	maps.Copy(c.Shapes[document], shape)
}

// Milliseconds is a time in milliseconds.
func Milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Quantile is the value below which the share q of the sorted values lies.
func Quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	n := int(q*float64(len(sorted))+0.9999) - 1
	return sorted[min(max(n, 0), len(sorted)-1)]
}

// Store writes a report to the file out, and that of its kind when out is empty.
func Store(out, kind, text string, now time.Time) error {
	if out == "" {
		var err error
		if out, err = resultFile(kind, now); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if err := os.WriteFile(out, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	fmt.Fprintln(os.Stderr, "written to", out)
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
