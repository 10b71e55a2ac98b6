package exposition

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// Document is a metric document that is made while it is written.
type Document func(emit func(*dto.MetricFamily) error) error

// Negotiate returns the format for an HTTP Accept header; the text format
// 0.0.4 when the header asks for nothing that we have.
func Negotiate(accept string) expfmt.Format {
	return expfmt.NegotiateAccept(http.Header{"Accept": []string{accept}}, expfmt.DefaultOpenMetricsAcceptedFormats()...)
}

// Write writes a document in a format.
func Write(w io.Writer, format expfmt.Format, document Document) error {
	if format.FormatType() == expfmt.TypeTextPlain {
		return writeText(w, document)
	}
	encoder := expfmt.NewEncoder(w, format)
	err := document(func(family *dto.MetricFamily) error {
		if family == nil {
			return nil
		}
		return encoder.Encode(family)
	})
	if err != nil {
		return fmt.Errorf("write metrics as %s: %w", format, err)
	}
	if closer, ok := encoder.(expfmt.Closer); ok {
		if err := closer.Close(); err != nil {
			return fmt.Errorf("finish metrics as %s: %w", format, err)
		}
	}
	return nil
}

func writeText(w io.Writer, document Document) error {
	text := newTextWriter(w)
	err := document(func(family *dto.MetricFamily) error {
		if family != nil {
			text.family(family)
		}
		return nil
	})
	if err = errors.Join(err, text.close()); err != nil {
		return fmt.Errorf("write metrics as text: %w", err)
	}
	return nil
}

// constant returns a family with one sample.
func constant(name, help string, kind dto.MetricType, value float64, labels ...*dto.LabelPair) *dto.MetricFamily {
	f := family{name: name, help: help, kind: kind}
	return &dto.MetricFamily{Name: &f.name, Help: &f.help, Type: &f.kind, Metric: []*dto.Metric{f.sample(value, labels, nil)}}
}
