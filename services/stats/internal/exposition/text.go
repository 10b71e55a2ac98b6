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
		t.line = append(append(t.line[:0], name...), t.labels(m.Label)...)
		t.line = append(t.line, ' ')
		value := m.GetGauge().GetValue()
		if m.Counter != nil {
			value = m.GetCounter().GetValue()
		}
		t.line = appendValue(t.line, value)
		if m.TimestampMs != nil {
			t.line = strconv.AppendInt(append(t.line, ' '), m.GetTimestampMs(), 10)
		}
		_, _ = t.w.Write(append(t.line, '\n'))
	}
}

func (t *textWriter) close() error { return t.w.Flush() }

// labels are the braces after a name; nothing without labels.
func (t *textWriter) labels(set []*dto.LabelPair) string {
	if len(set) == 0 {
		return ""
	}
	key := set[0]
	if len(set) == rowLabels {
		if text, ok := t.sets[key]; ok {
			return text
		}
	}
	var out strings.Builder
	for i, l := range set {
		out.WriteByte("{,"[min(i, 1)])
		out.WriteString(l.GetName())
		out.WriteString(`="`)
		_, _ = valueEscaper.WriteString(&out, l.GetValue())
		out.WriteByte('"')
	}
	out.WriteByte('}')
	if len(set) == rowLabels {
		t.sets[key] = out.String()
	}
	return out.String()
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
