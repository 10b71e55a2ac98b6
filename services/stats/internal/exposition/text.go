package exposition

import (
	"bufio"
	"io"
	"math"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// textWriter writes families of gauges and counters in the text format 0.0.4.
// Most of a document is labels, and those of a cgroup are the same in sixty
// families: they are put together once. The general encoder does it, and looks
// for what to escape, for every sample; it takes three times as long.
type textWriter struct {
	w *bufio.Writer
	// sets are label sets of rows as text, by their first label: that is one
	// object in all samples of a row.
	sets map[*dto.LabelPair]string
	// line is where a sample is put together.
	line []byte
}

// rowLabels is how many labels the row of a cgroup has. Sets with a label of a
// family's own have more, those of other documents and of the machine fewer.
const rowLabels = 6

func newTextWriter(w io.Writer) *textWriter {
	return &textWriter{w: bufio.NewWriter(w), sets: map[*dto.LabelPair]string{}}
}

var (
	helpEscaper  = strings.NewReplacer("\\", `\\`, "\n", `\n`)
	valueEscaper = strings.NewReplacer("\\", `\\`, "\n", `\n`, "\"", `\"`)
)

// family writes one family. Errors come from close: a bufio.Writer keeps them.
func (t *textWriter) family(f *dto.MetricFamily) {
	name, kind := f.GetName(), "gauge"
	if f.GetType() == dto.MetricType_COUNTER {
		kind = "counter"
	}
	_, _ = t.w.WriteString("# HELP " + name + " " + helpEscaper.Replace(f.GetHelp()) + "\n# TYPE " + name + " " + kind + "\n")
	for _, m := range f.Metric {
		t.line = append(t.labels(append(t.line[:0], name...), m.Label), ' ')
		value := m.GetGauge().GetValue()
		if m.Counter != nil {
			value = m.GetCounter().GetValue()
		}
		t.line = appendValue(t.line, value)
		if m.TimestampMs != nil {
			t.line = strconv.AppendInt(append(t.line, ' '), m.GetTimestampMs(), 10)
		}
		t.line = append(t.line, '\n')
		_, _ = t.w.Write(t.line)
	}
}

func (t *textWriter) close() error { return t.w.Flush() }

// labels appends the braces after a name; nothing without labels.
func (t *textWriter) labels(line []byte, set []*dto.LabelPair) []byte {
	if len(set) == 0 {
		return line
	}
	if text, ok := t.sets[set[0]]; ok && len(set) == rowLabels {
		return append(line, text...)
	}
	start := len(line)
	for i, l := range set {
		line = append(append(append(line, "{,"[min(i, 1)]), l.GetName()...), '=', '"')
		if value := l.GetValue(); strings.ContainsAny(value, "\\\n\"") {
			line = append(line, valueEscaper.Replace(value)...)
		} else {
			line = append(line, value...)
		}
		line = append(line, '"')
	}
	line = append(line, '}')
	if len(set) == rowLabels {
		t.sets[set[0]] = string(line[start:])
	}
	return line
}

func appendValue(line []byte, v float64) []byte {
	switch {
	case math.IsNaN(v):
		return append(line, "NaN"...)
	case math.IsInf(v, 1):
		return append(line, "+Inf"...)
	case math.IsInf(v, -1):
		return append(line, "-Inf"...)
	}
	return strconv.AppendFloat(line, v, 'g', -1, 64)
}
