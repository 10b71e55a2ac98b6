package tracing

import (
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	oteltrace "go.opentelemetry.io/otel/trace"
)

// longest bounds each text of a span, in bytes: with as many as spans have here, a
// batch (512 spans) fits into the 4 MiB that a collector takes at once.
const longest = 1 << 10

// Text is text as a span may have it: UTF-8, with a sign where it is none, and of
// a bounded length. One that is not has all spans thrown away that are sent with
// it, so each name, status and attribute that is no constant goes through here.
// The result does not keep a longer text in memory.
func Text(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= longest {
		return text
	}
	const more = " …"
	cut := longest - len(more)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return strings.Clone(text[:cut]) + more
}

// String is an attribute whose value is text as Text makes it.
func String(key, text string) attribute.KeyValue { return attribute.String(key, Text(text)) }

// Fail gives a span the status of an error; nil changes nothing.
func Fail(span oteltrace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, Text(err.Error()))
	}
}
